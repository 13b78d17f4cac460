# SPDX-License-Identifier: Apache-2.0
"""The gate's process before a real Flight server: strangers, bombs and idlers on raw sockets, honest clients beside
them.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from lakeward.client.columns import parse_columns
from lakeward.errors import InvalidConfig
from lakeward.hot.embedded.gate.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PREFACE,
    RST_STREAM,
    frame,
)
from lakeward.hot.embedded.gate.keeper import GateKeeper, GateSecrets, make_socket_folder
from lakeward.hot.embedded.gate.settings import GateLimits
from lakeward.hot.embedded.serve.service import FlightService
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model.bucket import Bucket
from lakeward.model.ids import new_table_id
from lakeward.model.schema import Schema
from lakeward.model.table import TableDescriptor, TableInfo, TablePath
from lakeward.protocol.auth import TokenSet
from lakeward.protocol.flight import BatchHeader, PutCommand, PutKind, to_bytes
from lakeward_testing.waiting import wait_until
from tests.server.test_security import self_signed
from tests.unit.hot.embedded.gate.conversation import GREETING, call, data, message
from tests.unit.hot.embedded.serve.standin import client_at, held_store

TOKENS = ("ann:admin:top",)
LIST = flight.Action("list-tables", b"{}")


def shown(secret: str = "top") -> flight.FlightCallOptions:
    return flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {secret}".encode())], timeout=120)


@dataclass
class Audit:
    """Who called, from where."""

    lines: list[tuple[str, str, str]] = field(default_factory=list)

    def flight(self, who: str, peer: str, what: str, table: str | None, result: str, *, is_change: bool) -> None:
        self.lines.append((who, peer, what))


@dataclass
class Gated:
    keeper: GateKeeper
    audit: Audit
    host: str
    news: list[tuple[str, str, str]]
    store: EmbeddedStore

    @property
    def gate_pid(self) -> int:
        assert self.keeper.pid is not None
        return self.keeper.pid

    def peer(self) -> socket.socket:
        return socket.create_connection((self.host, self.keeper.port), timeout=120)

    def ask(self, **options: object) -> None:
        """An honest call."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "grpc+tls" if options else "grpc"
        with flight.FlightClient(f"{scheme}://{name}:{self.keeper.port}", **options) as client:
            assert len(list(client.do_action(LIST, shown()))) == 1

    def memory_kb(self) -> int:
        text = Path(f"/proc/{self.gate_pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0])


@contextmanager
def gated(
    host: str = "127.0.0.1",
    limits: GateLimits | None = None,
    tokens: tuple[str, ...] = TOKENS,
    tls: tuple[bytes, bytes] | None = None,
) -> Iterator[Gated]:
    with held_store() as store:
        yield from _gated(store, host, limits or GateLimits(), tokens, tls)


def _gated(
    store: EmbeddedStore, host: str, limits: GateLimits, tokens: tuple[str, ...], tls: tuple[bytes, bytes] | None
) -> Iterator[Gated]:
    inner, audit, news = make_socket_folder() / "flight", Audit(), list[tuple[str, str, str]]()
    service = FlightService(store, TokenSet.parse(tokens), audit=audit, behind=inner)
    certificate, key = tls or (None, None)
    secrets = GateSecrets(tokens=tokens, certificate=certificate, key=key)
    keeper = GateKeeper(host, 0, inner, limits, secrets, lambda cause, peer, text: news.append((cause, peer, text)))
    try:
        keeper.start()
        yield Gated(keeper, audit, host, news, store)
    finally:
        keeper.stop()
        service.shutdown()
        assert not inner.parent.exists()


@pytest.fixture(scope="module")
def gate() -> Iterator[Gated]:
    """Little patience with idle calls; enough for honest ones on a busy machine."""
    with gated(limits=GateLimits(idle_s=4.0)) as made:
        yield made


@pytest.fixture(scope="module")
def hasty() -> Iterator[Gated]:
    """Little patience before the first call."""
    with gated(limits=GateLimits(header_s=3.0, connections_per_peer=60)) as made:
        yield made


def frames_until_end(peer: socket.socket) -> list[tuple[int, int, int, bytes]]:
    """What came until the connection was closed."""
    raw = b""
    with suppress(ConnectionResetError):
        while piece := peer.recv(65536):
            raw += piece
    found = []
    while len(raw) >= 9:
        size = int.from_bytes(raw[:3], "big")
        found.append((raw[3], raw[4], int.from_bytes(raw[5:9], "big"), raw[9 : 9 + size]))
        raw = raw[9 + size :]
    return found


BOMB = b"\x40\x01a\x7f\x81\x1e" + bytes(3968) + b"\xbe" * 9000
"""Three megabytes of headers in thirteen kilobytes."""


HALF = (
    b"",
    PREFACE[:10],
    GREETING,
    GREETING + call(1, "DoPut", "top")[:20],
    GREETING + call(1, "DoPut", "top") + frame(DATA, 0, 1, message(500))[:100],
    GREETING + frame(HEADERS, 0, 1, b""),
)
WRONG = (
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    bytes(range(256)) * 40,
    GREETING + b"\xff" * 4000,
    GREETING + frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, 0, 1, b"x") * 5000,
    GREETING + frame(HEADERS, END_HEADERS, 1, BOMB),
)


def said(peer: socket.socket, raw: bytes) -> list[tuple[int, int, int, bytes]]:
    with suppress(ConnectionResetError, BrokenPipeError):
        peer.sendall(raw)
    return frames_until_end(peer)


def test_who_sends_half_of_something_is_let_go(hasty: Gated) -> None:
    """Half of a greeting, of headers, of a message: after the header time the connection ends."""
    peers = [hasty.peer() for _ in HALF]
    for peer, raw in zip(peers, HALF, strict=True):
        peer.sendall(raw)
    for peer in peers:
        with peer:
            frames_until_end(peer)
    hasty.ask()


@pytest.mark.parametrize("raw", WRONG, ids=["http1", "bytes", "frames", "continuation", "bomb"])
def test_who_speaks_wrong_is_let_go_at_once(gate: Gated, raw: bytes) -> None:
    with gate.peer() as peer:
        address = "{}:{}".format(*peer.getsockname())
        said(peer, raw)
    wait_until(lambda: ("misbehaved", address) in [news[:2] for news in gate.news], what="a line about it")
    gate.ask()


def test_many_who_send_half_cost_little_and_go(hasty: Gated) -> None:
    before = hasty.memory_kb()
    peers = [hasty.peer() for _ in range(90)]
    for number, peer in enumerate(peers):
        with suppress(ConnectionResetError, BrokenPipeError):
            peer.sendall([PREFACE[:10], GREETING][number % 2])
    assert hasty.memory_kb() < before + 20_000
    for peer in peers:
        with peer:
            frames_until_end(peer)
    wait_until(lambda: any(cause == "connections" for cause, _, _ in hasty.news), what="a line about too many")
    hasty.ask()


def test_the_first_honest_words_are_answered_and_the_peer_is_named(gate: Gated) -> None:
    """A peer header of the client's own is not believed."""
    with gate.peer() as peer:
        address = "{}:{}".format(*peer.getsockname())
        forged = call(1, "DoAction", "top", (b"lakeward-peer", b"10.9.8.7:1"))
        body = b"\x0a\x0blist-tables"
        peer.sendall(GREETING + forged + data(1, b"\0" + len(body).to_bytes(4, "big") + body, END_STREAM))
        found = frames_until_end(peer)
    assert any(kind == DATA and stream == 1 for kind, _, stream, _ in found)
    assert found[-1][0] == GOAWAY, "without further calls the connection ends in order"
    assert ("ann", address, "action list-tables") in gate.audit.lines
    assert not any("10.9.8.7" in peer for _, peer, _ in gate.audit.lines)


def test_a_refused_stream_leaves_the_connection_as_it_was(gate: Gated) -> None:
    with flight.FlightClient(f"grpc://127.0.0.1:{gate.keeper.port}") as client:
        for _ in range(5):
            with pytest.raises(flight.FlightUnauthenticatedError, match="no valid token"):
                list(client.do_action(LIST, shown("wrong")))
            with pytest.raises(flight.FlightServerError, match="at most 16777216 are taken"):
                client.do_get(flight.Ticket(bytes(17 << 20)), shown()).read_all()
            assert len(list(client.do_action(LIST, shown()))) == 1
    wait_until(lambda: {cause for cause, _, _ in gate.news} >= {"unauthorized", "invalid-request"}, what="news")


def test_put_streams_that_send_nothing_end(gate: Gated) -> None:
    """By the gate, with an error that clients try again on; the server's threads are free."""

    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    before = threads()
    with gate.peer() as peer:
        peer.sendall(GREETING + b"".join(call(1 + 2 * n, "DoPut", "top") for n in range(80)))
        wait_until(lambda: threads() > before + 60, what="a thread for each stream")
        found = frames_until_end(peer)
    ended = {stream for kind, flags, stream, _ in found if kind == HEADERS and flags & END_STREAM}
    assert ended == {1 + 2 * n for n in range(80)}
    assert {stream for kind, _, stream, _ in found if kind == RST_STREAM} == ended
    wait_until(lambda: threads() < before + 20, what="the threads to end")


def put_zeros(client: flight.FlightClient, table: TableInfo, rows: int) -> None:
    """A batch that is small on its way and large once it is unpacked."""
    batch = pa.record_batch({"id": pa.array([0], pa.int64()).take(pa.array([0] * rows))})
    command = PutCommand(table=table.path, table_id=table.table_id, kind=PutKind.APPEND, schema_id=1)
    packed = flight.FlightCallOptions(timeout=120, write_options=pa.ipc.IpcWriteOptions(compression="zstd"))
    descriptor = flight.FlightDescriptor.for_command(to_bytes(command))
    writer, reader = client.do_put(descriptor, batch.schema, packed)
    with writer:
        writer.write_with_metadata(batch, to_bytes(BatchHeader(bucket=Bucket("", 0))))
        writer.done_writing()
        while reader.read() is not None:
            pass


def test_a_batch_that_unpacks_into_a_large_one_is_refused_packed() -> None:
    descriptor = TableDescriptor(schema=Schema(columns=parse_columns("id BIGINT")), bucket_count=1)
    table = TableInfo(path=TablePath("d", "t"), table_id=new_table_id(), descriptor=descriptor)
    with (
        gated(tokens=(), limits=GateLimits(batch_bytes=1 << 20)) as made,
        flight.FlightClient(f"grpc://127.0.0.1:{made.keeper.port}") as client,
    ):
        made.store.create_table(table)
        put_zeros(client, table, 100_000)
        with pytest.raises(flight.FlightServerError, match="unpacks to more than"):
            put_zeros(client, table, 5_000_000)
        put_zeros(client, table, 100_000)
        assert made.store.bounds(table)[Bucket("", 0)].end == 200_000


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_tls_and_tokens(tmp_path: Path, host: str) -> None:
    cert, key = (path.read_bytes() for path in self_signed(tmp_path))
    with gated(host, tls=(cert, key)) as made:
        options = {"tls_root_certs": cert, "override_hostname": "localhost"}
        made.ask(**options)
        assert made.audit.lines[-1][1].rpartition(":")[0] == (f"[{host}]" if ":" in host else host)
        with pytest.raises(flight.FlightUnavailableError):
            made.ask()
        with made.peer() as plain:
            plain.sendall(GREETING + call(1, "DoGet", "top"))
            frames_until_end(plain)
        name = f"[{host}]" if ":" in host else host
        with flight.FlightClient(f"grpc+tls://{name}:{made.keeper.port}", **options) as client:
            with pytest.raises(flight.FlightServerError, match="at most"):
                client.do_get(flight.Ticket(bytes(20 << 20)), shown()).read_all()
            assert len(list(client.do_action(LIST, shown()))) == 1


def test_a_gate_that_is_killed_is_started_again_on_its_port() -> None:
    with gated(tokens=()) as made, client_at(made.keeper.port) as client:
        tables = client.store.list_tables
        tables()
        for _ in range(3):
            before = made.gate_pid
            os.kill(before, signal.SIGKILL)
            assert list(tables()) == []
            wait_until(lambda before=before: made.gate_pid != before, what="another gate")  # type: ignore[misc]
        assert made.keeper.heartbeat().is_well
    assert not made.keeper.heartbeat().is_well


def test_the_gate_is_small_and_outlives_signals_of_the_terminal() -> None:
    with gated() as made:
        assert made.memory_kb() < 30_000
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(made.gate_pid, number)
        pid = made.gate_pid
        made.ask()
        assert made.gate_pid == pid


def test_a_certificate_that_is_none_is_said_in_words() -> None:
    with pytest.raises(InvalidConfig, match="gate before Flight"), gated(tls=(b"no", b"pem")):
        pass


def test_the_gate_ends_with_its_server() -> None:
    code = (
        "import sys\n"
        "from lakeward.hot.embedded.gate.keeper import *\n"
        "folder = make_socket_folder()\n"
        "keeper = GateKeeper('127.0.0.1', 0, folder / 'flight', GateLimits(), GateSecrets())\n"
        "keeper.start()\n"
        "print(keeper.pid, keeper.port, folder, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        pid, port, folder = server.stdout.readline().decode().split()
        assert Path(folder).stat().st_mode & 0o777 == 0o700
        server.kill()

    def is_gone() -> bool:
        with suppress(FileNotFoundError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return True

    wait_until(is_gone, what="the gate to end")
    assert not Path(folder).exists()
    with socket.create_server(("127.0.0.1", int(port))):
        pass
