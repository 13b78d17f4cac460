# SPDX-License-Identifier: Apache-2.0
"""Proxies between the lab's processes: HTTP with answers that come late, never or wrong; and cut connections."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from lakeward.testing.proxy import CuttingProxy

_HOP = {"host", "connection", "content-length", "transfer-encoding", "content-encoding", "accept-encoding"}
DELAY_S = 0.4
CATALOG = "/iceberg"


class HurtingProxy:
    """In front of the server's HTTP door, with a TCP proxy in front of its Flight door. Answers that name these doors are rewritten
    to name the proxies, so that whoever starts here stays here."""

    def __init__(self, http_port: int, flight_port: int) -> None:
        self.flight = CuttingProxy(("127.0.0.1", flight_port))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._target = f"http://127.0.0.1:{http_port}"
        self._rewrites = (
            (f"127.0.0.1:{http_port}".encode(), f"127.0.0.1:{self.port}".encode()),
            (f"127.0.0.1:{flight_port}".encode(), f"127.0.0.1:{self.flight.port}".encode()),
        )
        self._client = httpx.Client(timeout=120, limits=httpx.Limits(max_connections=None))
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}
        self._turn = 0
        self._connections: set[socket.socket] = set()
        self.hurt = 0
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    # ---- the lab's side --------------------------------------------------------------------------------------------
    def begin(self, mischief: str, seconds: float) -> None:
        """`delay`, `lose-answer`, or of the catalog alone `500`, `409`, `time-out`: for that long."""
        with self._lock:
            self._until[mischief] = time.monotonic() + seconds

    def cut(self) -> None:
        """Ends every HTTP connection there is now."""
        with self._lock:
            connections, self._connections = self._connections, set()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        with self._lock:
            self._until.clear()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.cut()
        self.flight.close()
        self._client.close()

    # ---- a request's way -------------------------------------------------------------------------------------------
    def keep(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)

    def mischief(self, method: str, path: str) -> tuple[str | None, bool]:
        """(what to do to this request, whether it takes place all the same: every second one does)."""
        with self._lock:
            now = time.monotonic()
            active = {name for name, until in self._until.items() if until > now}
            catalog = active & {"500", "409", "time-out"} if path.startswith(CATALOG) and method == "POST" else set()
            found = next(iter(sorted(catalog)), None) or next((n for n in ("lose-answer", "delay") if n in active), None)
            if found is not None:
                self.hurt += 1
                self._turn += 1
            return found, self._turn % 2 == 0

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> httpx.Response:
        return self._client.request(method, self._target + path, headers=headers, content=body)

    def rewrite(self, body: bytes) -> bytes:
        for old, new in self._rewrites:
            body = body.replace(old, new)
        return body


def _handler(proxy: HurtingProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            proxy.keep(self.connection)

        def log_message(self, format: str, *args: Any) -> None:
            return

        def handle(self) -> None:
            with contextlib.suppress(OSError):  # a connection that we cut, or that its owner left
                super().handle()

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            mischief, takes_place = proxy.mischief(self.command, self.path)
            if mischief == "delay":
                time.sleep(DELAY_S)
            if mischief in (None, "delay"):
                self._forward(body)
            elif mischief == "lose-answer":
                self._send(body)
                self._hang_up()
            else:
                self._refuse(str(mischief), body, takes_place)

        def _refuse(self, mischief: str, body: bytes, takes_place: bool) -> None:
            if takes_place:
                self._send(body)
            if mischief == "time-out":
                time.sleep(DELAY_S * 5)
                self._hang_up()
            else:
                code, kind = (500, "InternalServerError") if mischief == "500" else (409, "CommitFailedException")
                error = f'{{"error":{{"message":"by the lab","type":"{kind}","code":{code}}}}}'
                self._answer(code, {"content-type": "application/json"}, error.encode())

        def _forward(self, body: bytes) -> None:
            response = self._send(body)
            if response is None:
                self._hang_up()
            else:
                self._answer(response.status_code, dict(response.headers), proxy.rewrite(response.content))

        def _send(self, body: bytes) -> httpx.Response | None:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP}
            try:
                return proxy.forward(self.command, self.path, headers, body)
            except httpx.HTTPError:
                return None

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _pass

        def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def _hang_up(self) -> None:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    return Handler
