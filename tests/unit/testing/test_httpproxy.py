# SPDX-License-Identifier: Apache-2.0
"""The proxy that tests put in front of servers: passes, answers in a server's place, loses, and cuts."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx
import pytest

from lakeward_testing.chaos.proxy import HurtingProxy
from lakeward_testing.httpproxy import HttpProxy


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: list[str] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.seen.append(self.path)
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def echo() -> Iterator[int]:
    Echo.seen.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield int(server.server_address[1])
    server.shutdown()
    server.server_close()
    thread.join(120)


def test_it_passes_on_and_says_when_nobody_answers(echo: int) -> None:
    proxy, dead = HttpProxy(f"http://127.0.0.1:{echo}"), HttpProxy("http://127.0.0.1:1")
    try:
        assert httpx.post(proxy.url + "/a", content=b"hello", timeout=120).content == b"hello"
        with pytest.raises(httpx.HTTPError):
            httpx.post(dead.url + "/a", content=b"hello", timeout=120)
    finally:
        proxy.close()
        dead.close()


def test_every_second_refusal_takes_place_all_the_same(echo: int) -> None:
    proxy = HurtingProxy(echo, echo)
    try:
        proxy.begin("500", 60)
        assert [httpx.post(f"{proxy.url}/iceberg/{n}", timeout=120).status_code for n in range(4)] == [500] * 4
        assert len(Echo.seen) == 2
        assert httpx.post(f"{proxy.url}/api", content=b"x", timeout=120).content == b"x"
        proxy.heal()
        assert httpx.post(f"{proxy.url}/iceberg/5", timeout=120).status_code == 200
    finally:
        proxy.close()


@pytest.mark.parametrize(
    ("mischief", "path", "arrives"), [("lose-answer", "/api", True), ("no-coordinator", "/api", False)]
)
def test_answers_that_never_come(echo: int, mischief: str, path: str, arrives: bool) -> None:
    proxy = HurtingProxy(echo, echo)
    try:
        proxy.begin(mischief, 60)
        with pytest.raises(httpx.HTTPError):
            httpx.post(proxy.url + path, timeout=120)
        assert Echo.seen == ([path] if arrives else [])
        if mischief == "no-coordinator":
            assert httpx.post(f"{proxy.url}/iceberg/x", timeout=120).status_code == 200
    finally:
        proxy.close()


def test_answers_name_the_proxy(echo: int) -> None:
    proxy = HurtingProxy(echo, echo)
    try:
        assert (
            httpx.post(proxy.url, content=f"go to 127.0.0.1:{echo}".encode(), timeout=120).text
            == f"go to 127.0.0.1:{proxy.port}"
        )
    finally:
        proxy.close()
