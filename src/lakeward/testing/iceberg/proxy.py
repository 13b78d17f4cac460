# SPDX-License-Identifier: Apache-2.0
"""A real HTTP proxy that loses or doubles commits on their way to a catalog: for outcomes that nobody told us."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlparse

import httpx

_HOP = {"host", "connection", "content-length", "transfer-encoding", "content-encoding", "accept-encoding"}


class Mischief(StrEnum):
    LOSE_REQUEST = "lose-request"
    """The commit never reaches the catalog; the client sees the connection end."""

    LOSE_ANSWER = "lose-answer"
    """The commit takes place; the client sees the connection end."""

    FAIL_AFTER = "fail-after"
    """The commit takes place; a gateway in between answers 502."""

    SEND_TWICE = "send-twice"
    """A retry below us: the commit is sent again after it took place, and the second answer arrives."""


class CatalogProxy:
    """`arm` decides what happens to the next commits, in turn; everything else passes."""

    def __init__(self, target: str) -> None:
        parsed = urlparse(target)
        self._target = f"{parsed.scheme}://{parsed.netloc}"
        self._path = parsed.path
        self._armed: list[Mischief] = []
        self._lock = threading.Lock()
        self.commits = 0
        self.client = httpx.Client(timeout=30)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}{self._path}"

    def arm(self, *mischief: Mischief) -> None:
        with self._lock:
            self._armed += mischief

    def take(self, method: str, path: str) -> Mischief | None:
        """What to do with a request: only commits to tables are meddled with."""
        if method != "POST" or "/tables/" not in path or path.endswith("/metrics"):
            return None
        with self._lock:
            self.commits += 1
            return self._armed.pop(0) if self._armed else None

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> httpx.Response:
        return self.client.request(method, self._target + path, headers=headers, content=body)


def _handler(proxy: CatalogProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            return

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP}
            mischief = proxy.take(self.command, self.path)
            if mischief is Mischief.LOSE_REQUEST:
                self._hang_up()
                return
            response = proxy.forward(self.command, self.path, headers, body)
            if mischief is Mischief.SEND_TWICE:
                response = proxy.forward(self.command, self.path, headers, body)
            if mischief is Mischief.LOSE_ANSWER:
                self._hang_up()
                return
            if mischief is Mischief.FAIL_AFTER:
                self._answer(502, {}, b"bad gateway")
                return
            self._answer(response.status_code, dict(response.headers), response.content)

        do_GET = do_HEAD = do_POST = do_DELETE = _pass

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
            self.connection.close()

    return Handler


@contextmanager
def catalog_proxy(target: str) -> Iterator[CatalogProxy]:
    proxy = CatalogProxy(target)
    thread = threading.Thread(target=proxy.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.server.shutdown()
        proxy.server.server_close()
        proxy.client.close()
        thread.join(10)
