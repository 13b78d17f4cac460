# SPDX-License-Identifier: Apache-2.0
"""`lakeward doctor` asks hostile peers, and servers whose tables, settings and lake files are hostile: each call ends
with findings or a typed error, and nothing of a peer reaches the terminal raw."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lakeward.cli import app
from lakeward_testing.httpproxy import HttpProxy, ProxyAnswer, ProxyRequest
from tests.kit.changedjson import changed, places_in
from tests.kit.serverprocess import ServerProcess

Change = Callable[[ProxyRequest, ProxyAnswer], ProxyAnswer]
STRANGE: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**30, -(10**30), 1e308, "", "x" * 10_000, "\x1b[2J\x07", "\u202e", "../../x", [], {}),
    *([[[[]]]], {"a": {"b": 1}}, "1 h", "NaN", "0", [None], {"": None}),
)
ENDINGS = frozenset(range(8))
"""What commands end with; 1 is for findings and for what should not have happened."""


class HostilePeer(HttpProxy):
    """A real server's answers, changed on the way."""

    def __init__(self, target: str) -> None:
        self.change: Change = lambda _request, answer: answer
        super().__init__(target)

    def treat(self, request: ProxyRequest) -> ProxyAnswer | None:
        answer = self.send(request)
        return None if answer is None else self.change(request, answer)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("doctor") / "data"
    made = ServerProcess(data, settings={"datalake.format": "iceberg"}).start()
    client = made.client()
    for name in ("a", "b"):
        client.create_table(f"d.{name}", "id BIGINT NOT NULL", primary_key="id").upsert([{"id": 1}])
    yield made
    made.close()


@pytest.fixture(scope="module")
def peer(server: ServerProcess) -> Iterator[HostilePeer]:
    made = HostilePeer(server.url)
    yield made
    made.close()


def ask_doctor(url: str, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    code = app.run(["doctor", "--server", url, *more])
    output = "".join(capsys.readouterr())
    assert "should not have happened" not in output, output
    assert all(c.isprintable() or c == "\n" for c in output), repr(output)
    assert code in ENDINGS
    return code, output


# ---- a peer ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, 12))])
def test_anything_in_any_field_of_its_answers(seed: int, peer: HostilePeer, capsys: pytest.CaptureFixture[str]) -> None:
    random = Random(seed)

    answers_left = 0

    def change(_request: ProxyRequest, answer: ProxyAnswer) -> ProxyAnswer:
        """Of one of the answers that a call asks for."""
        nonlocal answers_left
        answers_left -= 1
        body = json.loads(answer.body)
        for _ in range(random.choice((1, 1, 3)) if not answers_left else 0):
            body = changed(body, random.choice(list(places_in(body))), random.choice(STRANGE))
        return ProxyAnswer(answer.status, answer.headers, json.dumps(body).encode())

    peer.change = change
    for number in range(30):
        answers_left = number % 6 + 1
        ask_doctor(peer.url, capsys, *random.choice(((), ("--json",), ("--table", "d.a"))))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", ""),
        (b"<html>", "no JSON"),
        (b"\xff\x00", "no JSON"),
        (b"[" * 200_000, "no JSON"),
        pytest.param(b"[[]" + b",[]" * 4_999_999 + b"]", "more than 5,000,000 values", marks=pytest.mark.soak),
        pytest.param(b" " * (257 << 20), "more than 256 MB", marks=pytest.mark.soak),
    ],
    ids=["nothing", "html", "bytes", "deep", "many", "large"],
)
@pytest.mark.parametrize("status", [200, 500])
def test_answers_that_are_no_message(
    body: bytes, words: str, status: int, peer: HostilePeer, capsys: pytest.CaptureFixture[str]
) -> None:
    peer.change = lambda _request, _answer: ProxyAnswer(status, {"Content-Type": "application/json"}, body)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code, output = ask_doctor(peer.url, capsys)
    assert code, output
    assert words in output or status == 500, output
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    assert grown_mb < 1200, "the test's own peer holds two copies"


@contextmanager
def talking(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """A peer that takes one connection after another and speaks its own language."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        is_over = threading.Event()

        def serve() -> None:
            while not is_over.is_set():
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(60)
                    try:
                        connection.recv(65_536)
                        talk(connection)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            is_over.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(60)


def _lie_about_length(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n[]")


def _send_headers_without_end(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X: " + b"y" * 60_000 + b"\r\n")


def _send_chunks_without_end(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"100000\r\n" + b" " * 0x100000 + b"\r\n")


@pytest.mark.parametrize(
    "talk",
    [
        _lie_about_length,
        _send_headers_without_end,
        pytest.param(_send_chunks_without_end, marks=pytest.mark.soak),
        lambda connection: connection.sendall(b"\x00" * 100_000),
        lambda connection: connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n"),
        lambda connection: connection.sendall(b"HTTP/1.1 \x1b[2J\r\n\r\n"),
    ],
    ids=["length", "headers", "chunks", "zeros", "redirect", "escape"],
)
def test_a_peer_that_speaks_no_http(talk: Callable[[socket.socket], None], capsys: pytest.CaptureFixture[str]) -> None:
    with talking(talk) as url:
        code, _ = ask_doctor(url, capsys)
    assert code


# ---- tables, settings and lake files ---------------------------------------------------------------------------------
def test_hostile_values_of_tables(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    shout = "\x1b]0;owned\x07\x1b[2J$(touch owned);`id`\r"
    server.client().create_table(
        "d.loud", "id BIGINT", comment=shout, properties={"table.datalake.enabled": "false", "owner": shout}
    )
    for more in ((), ("--probe",), ("--table", "d.loud")):
        ask_doctor(server.url, capsys, *more)
    _, output = ask_doctor(server.url, capsys, "--table", f"d.{shout}")
    assert "$(touch" not in output or "\x1b" not in output


def _replace(path: Path, kind: str) -> None:
    path.unlink() if path.is_file() else shutil.rmtree(path)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case "hole":
            with path.open("wb") as file:
                file.truncate(1 << 40)
        case _:
            path.write_bytes(b"\x1b[2J{" * 1000)


KINDS = ("link", "folder", "hole", "garbage", "missing")


@pytest.mark.parametrize("kind", ["pipe", *(pytest.param(kind, marks=pytest.mark.soak) for kind in KINDS)])
def test_hostile_lake_files(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The metadata of a table that was read before the server started again."""
    server = ServerProcess(tmp_path / "data", settings={"datalake.format": "iceberg"}).start()
    try:
        client = server.client()
        client.create_table("d.t", "id BIGINT").append([{"id": 1}])
        client.create_table("d.u", "id BIGINT").append([{"id": 1}])
        server.stop()
        (folder,) = (tmp_path / "data").rglob("d/t/metadata")
        for file in folder.iterdir():
            _replace(file, kind) if kind != "missing" else file.unlink()
        server.restart()
        for more in ((), ("--probe",), ("--table", "d.t", "--probe")):
            ask_doctor(server.url, capsys, *more)
        client.table("d.u").append([{"id": 2}])
    finally:
        server.close()
