# SPDX-License-Identifier: Apache-2.0
"""Calls share kept connections, one that the server has closed is never used, and a failure says whether the call can
have arrived.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Barrier, Event, Thread

import pytest

from lakeward.hot.embedded.remote.httppool import CallFailed, HttpPool

PATIENCE_S = 30.0


class Echo(BaseHTTPRequestHandler):
    """Answers with the path it was asked for and the number of the connection."""

    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.peers: list[int] = self.server.peers  # type: ignore[attr-defined]
        self.peers.append(self.client_address[1])

    def finish(self) -> None:
        super().finish()
        self.server.ended.set()  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        if self.path == "/together":
            self.server.together.wait(PATIENCE_S)  # type: ignore[attr-defined]
        if self.path == "/silence":
            self.close_connection = True
            return
        body = f"{self.peers.index(self.client_address[1])} {self.path}".encode()
        self.send_response(404 if self.path == "/nothing" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.path == "/last"

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def echo() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.peers, server.together, server.ended = [], Barrier(2), Event()  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def pool(echo: ThreadingHTTPServer) -> Iterator[HttpPool]:
    pool = HttpPool(f"http://127.0.0.1:{echo.server_address[1]}/below/", headers={})
    yield pool
    pool.close()


def get(pool: HttpPool, path: str) -> str:
    return pool.call("GET", path, None, {}, PATIENCE_S).content.decode()


def test_calls_share_a_connection_and_names_travel_escaped(pool: HttpPool) -> None:
    assert get(pool, "/a") == "0 /below/a"
    assert get(pool, "/tables/d.ü b?at=a%20b+c") == "0 /below/tables/d.%C3%BC%20b?at=a%20b+c"


def test_threads_get_connections_of_their_own(echo: ThreadingHTTPServer) -> None:
    pool = HttpPool(f"http://127.0.0.1:{echo.server_address[1]}", headers={})
    with ThreadPoolExecutor(2) as threads:
        answers = sorted(threads.map(lambda _: get(pool, "/together"), range(2)))
    assert answers == ["0 /together", "1 /together"]
    pool.close()


def test_a_connection_that_the_server_closed_is_not_used_again(echo: ThreadingHTTPServer) -> None:
    pool = HttpPool(f"http://127.0.0.1:{echo.server_address[1]}", headers={})
    assert get(pool, "/last") == "0 /last"
    assert echo.ended.wait(PATIENCE_S)  # type: ignore[attr-defined]
    wait_for_the_end(pool)
    assert get(pool, "/a") == "1 /a"
    pool.close()


def wait_for_the_end(pool: HttpPool) -> None:
    [(_, connection)] = pool._kept
    connection.sock.settimeout(PATIENCE_S)
    assert connection.sock.recv(1, socket.MSG_PEEK) == b""


def test_a_failure_says_whether_the_call_can_have_arrived(echo: ThreadingHTTPServer) -> None:
    pool = HttpPool(f"http://127.0.0.1:{echo.server_address[1]}", headers={})
    with pytest.raises(CallFailed) as silence:
        get(pool, "/silence")
    assert silence.value.is_sent
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        with pytest.raises(CallFailed, match="refused") as refused:
            get(HttpPool(f"http://127.0.0.1:{taken.getsockname()[1]}", headers={}), "/a")
    assert not refused.value.is_sent
    answer = pool.call("GET", "/nothing", None, {}, PATIENCE_S)
    assert (answer.status, answer.is_success) == (404, False)
    pool.close()
