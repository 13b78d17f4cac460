# SPDX-License-Identifier: Apache-2.0
"""The server's side of the gate: starts its process, starts it again when it dies, logs what it tells.

The listening socket is the server's: while no gate runs, connections wait in it. A gate ends with the pipe to it, so
with the server, however that ends.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lakeward.errors import InvalidConfig
from lakeward.hot.embedded.gate.settings import GateLimits, GateSettings
from lakeward.model.background import Heartbeat

log = logging.getLogger(__name__)

BACKLOG = 1024
_LONGEST_PATH = 100
"""Bytes of a socket's path; systems take 104 or 108."""
_PORT_S = 3.0
"""A gate whose server was killed leaves the port a moment later."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _WELL_S = 0.05, 5.0, 10.0
_END_S = 5.0


@dataclass(frozen=True, kw_only=True)
class GateSecrets:
    """`tokens` as configuration spells them; `certificate` and `key` are PEM bytes."""

    tokens: tuple[str, ...] = ()
    token_file: Path | None = None
    certificate: bytes | None = None
    key: bytes | None = None


def make_socket_folder() -> Path:
    """A folder of this user's alone, whose path leaves room for a socket's name."""
    folder = Path(tempfile.mkdtemp(prefix="lakeward-"))
    if len(os.fsencode(folder)) <= _LONGEST_PATH - len("/flight"):
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="lakeward-", dir="/tmp"))


class GateKeeper:
    """`start` returns once the gate takes connections. `on_news` hears (cause, peer, text) of what it refused."""

    def __init__(
        self,
        host: str,
        port: int,
        inner: Path,
        limits: GateLimits,
        secrets: GateSecrets,
        on_news: Callable[[str, str, str], None] = lambda cause, peer, text: None,
    ) -> None:
        """Listens. Raises `OSError`."""
        self._listener = listen(host, port)
        self._on_news, self._folder = on_news, inner.parent
        self._settings = GateSettings(
            listener=self._listener.fileno(),
            inner=str(inner),
            limits=limits,
            tokens=secrets.tokens,
            token_file=None if secrets.token_file is None else str(secrets.token_file.absolute()),
            certificate=None if secrets.certificate is None else secrets.certificate.decode(),
            key=None if secrets.key is None else secrets.key.decode(),
        )
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._ended_at: float | None = None

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Raises `InvalidConfig` for a certificate that cannot be used."""
        self._process = self._spawn()
        self._thread = threading.Thread(target=self._watch, name="flight-gate", daemon=True)
        self._thread.start()

    def heartbeat(self) -> Heartbeat:
        """Not well while no gate runs for longer than a start takes."""
        age_s = 0.0 if self._ended_at is None else time.monotonic() - self._ended_at
        is_watched = self._thread is not None and self._thread.is_alive()
        return Heartbeat(name="flight-gate", age_s=age_s, is_well=is_watched and age_s <= _WELL_S)

    def stop(self) -> None:
        """Ends the gate and all connections through it. Safe to repeat."""
        self._stopping.set()
        process, thread = self._process, self._thread
        if process is not None and process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if thread is not None:
            thread.join(_END_S)
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "lakeward.hot.embedded.gate"]
        process = subprocess.Popen(  # noqa: S603 - our own module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(self._settings.listener,)
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError):
            process.stdin.write(self._settings.to_line())
            process.stdin.flush()
        said = json.loads(process.stdout.readline() or b"{}")
        if "ready" not in said:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    pipe.close()
            raise InvalidConfig(
                where="the gate before Flight", reason=said.get("failed", f"it ended with code {process.returncode}")
            )
        return process

    def _watch(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while self._process is not None:
            begun_at = time.monotonic()
            code = self._listen_to(self._process)
            self._ended_at = time.monotonic()
            if self._ended_at - begun_at > _WELL_S:
                pause_s = _FIRST_PAUSE_S
            while True:
                if self._stopping.wait(pause_s):
                    return
                log.error("the gate before Flight ended with code %s and is started again", code)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                try:
                    self._process, self._ended_at = self._spawn(), None
                    break
                except (OSError, InvalidConfig, ValueError) as error:
                    log.error("the gate before Flight does not start: %s", error)
            if self._stopping.is_set():
                self._process.kill()

    def _listen_to(self, process: subprocess.Popen[bytes]) -> int:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                try:
                    news = json.loads(line)
                    log.warning("Flight: refused (%s) from %s: %s", news["cause"], news["peer"], news["text"])
                    self._on_news(news["cause"], news["peer"], news["text"])
                except Exception:  # a line that cannot be told must not end the watch
                    log.exception("a line of the gate before Flight")
        code = process.wait()
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        return code


def listen(host: str, port: int) -> socket.socket:
    """Raises `OSError`."""
    give_up_at = time.monotonic() + _PORT_S
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    is_dual = host == "::" and socket.has_dualstack_ipv6()
    while True:
        try:
            return socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=is_dual)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > give_up_at:
                raise
            time.sleep(0.05)
