# SPDX-License-Identifier: Apache-2.0
"""A Fluss server on a real socket whose answers a test writes: frames, order of answers, silence, broken
connections.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lakeward.hot.fluss.wire.messages import API_VERSIONS, ERROR, Api, encode

Answer = Callable[["Call"], None]


@dataclass
class Call:
    """One request as it came; answer it, now or later, or not at all."""

    key: int
    number: int
    body: bytes
    sock: socket.socket

    def done(self, api: Api, values: Mapping[str, Any]) -> None:
        self.send(0, encode(api.response, values))

    def fail(self, code: int, message: str = "") -> None:
        self.send(1, encode(ERROR, {"code": code, "message": message}))

    def hang_up(self) -> None:
        self.sock.shutdown(socket.SHUT_RDWR)

    def send(self, kind: int, body: bytes) -> None:
        self.sock.sendall(struct.pack(">ibi", 5 + len(body), kind, self.number) + body)


@dataclass
class ScriptedServer:
    """Answers ApiVersions by itself with `keys`, each in version `lowest` only; everything else goes to `answer`."""

    answer: Answer
    keys: tuple[int, ...] = ()
    lowest: int = 0
    calls: list[Call] = field(default_factory=list)
    connections: int = 0
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            try:
                while True:
                    length, key, _, number = struct.unpack(">ihhi", _exactly(sock, 12))
                    call = Call(key, number, _exactly(sock, length - 8), sock)
                    if key == API_VERSIONS.key:
                        call.done(
                            API_VERSIONS,
                            {"versions": [{"key": k, "min": self.lowest, "max": self.lowest} for k in self.keys]},
                        )
                        continue
                    self.calls.append(call)
                    self.answer(call)
            except OSError:
                return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def scripted(answer: Answer, keys: tuple[int, ...] = (), lowest: int = 0) -> Iterator[ScriptedServer]:
    server = ScriptedServer(answer, keys, lowest)
    thread = threading.Thread(target=server.accept, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(120)


def _exactly(sock: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = sock.recv(size - len(found))
        if not part:
            raise OSError("closed")
        found += part
    return found
