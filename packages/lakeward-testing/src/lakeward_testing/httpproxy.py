# SPDX-License-Identifier: Apache-2.0
"""A real HTTP proxy in front of one server. What it does to a request is `treat`'s to say: pass it on, answer in its
place, lose it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

_HOP = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding"}
"""Headers that belong to one connection."""


@dataclass(frozen=True)
class ProxyRequest:
    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class ProxyAnswer:
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class HttpProxy:
    """Listens on a free loopback port from the start on."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._client = httpx.Client(timeout=120, limits=httpx.Limits(max_connections=None))
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def treat(self, request: ProxyRequest) -> ProxyAnswer | None:
        """The answer that the client gets. None: its connection ends without one."""
        return self.send(request)

    def send(self, request: ProxyRequest) -> ProxyAnswer | None:
        """Lets it take place. None when nobody answered."""
        try:
            response = self._client.request(
                request.method, self.target + request.path, headers=dict(request.headers), content=request.body
            )
        except httpx.HTTPError:
            return None
        headers = {name: value for name, value in response.headers.items() if name != "content-encoding"}
        return ProxyAnswer(response.status_code, headers, response.content)

    def cut(self) -> None:
        """Ends every connection there is now; new ones are taken."""
        with self._lock:
            connections, self._connections = self._connections, set()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.cut()
        self._client.close()
        self._thread.join(120)

    def keep(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    proxy: HttpProxy


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.proxy.keep(self.connection)

    def log_message(self, format: str, *args: object) -> None:
        return

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # a connection that we cut, or that its owner left
            super().handle()

    def _pass(self) -> None:
        is_chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        body = self._read_chunks() if is_chunked else self.rfile.read(int(self.headers.get("content-length") or 0))
        answer = self.server.proxy.treat(
            ProxyRequest(self.command, self.path, _without_hop(dict(self.headers.items())), body)
        )
        if answer is None:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self._answer(answer)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _pass

    def _read_chunks(self) -> bytes:
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            continue
        return b"".join(chunks)

    def _answer(self, answer: ProxyAnswer) -> None:
        self.send_response(answer.status)
        for name, value in _without_hop(answer.headers).items():
            self.send_header(name, value)
        is_head = self.command == "HEAD"
        self.send_header(
            "content-length", answer.headers.get("content-length", "0") if is_head else str(len(answer.body))
        )
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)


def _without_hop(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP}
