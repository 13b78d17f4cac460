# SPDX-License-Identifier: Apache-2.0
"""Connections over which calls to one server travel, kept for the next call.

The standard library's client: a process that only asks a server once has started in a third of the time that loading
httpx takes (it brings a command line of its own, with rich and click).
"""

from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

from lakeward.errors import RemoteError

KEPT_S = 5.0
"""Equal to the time for which our server keeps an idle connection."""
MOST_KEPT = 20

MOST_ANSWER_BYTES = 256 << 20
"""The status of 10,000 tables is 8 MB. More is not from a Lakeward server, or asks for a filter."""

ANSWER_TIME_S = 300.0
"""For a whole answer, beyond the limit of a step: a peer that sends a byte from time to time never ends one."""


class CallFailed(Exception):
    """No answer. `is_sent` is False where the server cannot have seen the call."""

    def __init__(self, reason: str, *, is_sent: bool) -> None:
        self.reason, self.is_sent = reason, is_sent
        super().__init__(reason)


@dataclass(frozen=True)
class Answer:
    status: int
    content: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class HttpPool:
    """Threads share it, each call with a connection of its own. Not for use after a fork: make another then."""

    def __init__(self, url: str, *, headers: Mapping[str, str], ca: str | None = None) -> None:
        """Raises `OSError` for a `ca` that cannot be read. Certificates are loaded only where one will be shown: 65 ms
        of CPU."""
        address = urlsplit(url)
        self._host, self._port = address.hostname or "", address.port
        self._before = address.path.rstrip("/")
        self._tls = ssl.create_default_context(cafile=ca) if address.scheme == "https" else None
        self._headers = dict(headers)
        self._lock = threading.Lock()
        self._kept: list[tuple[float, http.client.HTTPConnection]] = []

    def call(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], limit_s: float) -> Answer:
        """`limit_s` is for each step: reaching the server, sending, the next bytes of its answer. Raises `CallFailed`,
        and `RemoteError` for an answer that is too large."""
        connection = self._connected(limit_s)
        try:
            connection.request(method, self._before + quote(target, safe=_SAFE), body, {**self._headers, **headers})
            connection.response_class = partial(_TimedResponse, limit_s=limit_s)  # type: ignore[assignment]
            response = connection.getresponse()
            answer = Answer(response.status, _read(response))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise CallFailed(str(error) or type(error).__name__, is_sent=True) from error
        except BaseException:
            connection.close()
            raise
        self._keep(connection)
        return answer

    def close(self) -> None:
        with self._lock:
            kept, self._kept = self._kept, []
        for _, connection in kept:
            connection.close()

    def _connected(self, limit_s: float) -> http.client.HTTPConnection:
        while (idle_connection := self._take()) is not None:
            since, connection = idle_connection
            if time.monotonic() - since < KEPT_S and not _is_ended(connection):
                connection.sock.settimeout(limit_s)
                return connection
            connection.close()
        if self._tls is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=limit_s)
        else:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=limit_s, context=self._tls)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise CallFailed(str(error) or type(error).__name__, is_sent=False) from error
        return connection

    def _take(self) -> tuple[float, http.client.HTTPConnection] | None:
        with self._lock:
            return self._kept.pop() if self._kept else None

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        now = time.monotonic()
        with self._lock:
            old = [(at, idle_connection) for at, idle_connection in self._kept if at < now - KEPT_S]
            self._kept = [(at, idle_connection) for at, idle_connection in self._kept if at >= now - KEPT_S]
            if connection.sock is not None and len(self._kept) < MOST_KEPT:
                self._kept.append((now, connection))
            else:
                old.append((now, connection))
        for _, idle_connection in old:
            idle_connection.close()


class _TimedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, limit_s: float, **more: Any) -> None:
        super().__init__(sock, *args, **more)
        self.fp = io.BufferedReader(_TimedBytes(sock, self.fp, limit_s))


class _TimedBytes(io.RawIOBase):
    """The bytes of one answer, each step within `limit_s`, all within `ANSWER_TIME_S` more."""

    def __init__(self, sock: socket.socket, source: io.BufferedIOBase, limit_s: float) -> None:
        self._sock, self._source, self._limit_s = sock, source, limit_s
        self._ends_at = time.monotonic() + limit_s + ANSWER_TIME_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._ends_at - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"its answer is not whole after {self._limit_s + ANSWER_TIME_S:g} s")
        self._sock.settimeout(min(left_s, self._limit_s))
        return self._source.readinto1(buffer)

    def close(self) -> None:
        self._source.close()
        super().close()


def _read(response: http.client.HTTPResponse) -> bytes:
    content = response.read(MOST_ANSWER_BYTES + 1)
    if len(content) > MOST_ANSWER_BYTES:
        raise RemoteError(remote_code=str(response.status), text=f"more than {MOST_ANSWER_BYTES >> 20} MB")
    return content


_SAFE = "/?=&%:,;@+$!~*'()[]"
"""Characters that are sent unescaped in paths and queries; all others are percent-encoded."""


def _is_ended(connection: http.client.HTTPConnection) -> bool:
    """Whether the server has closed it meanwhile: bytes before our next question can only be the end."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))
