# SPDX-License-Identifier: Apache-2.0
"""The Flight port before strangers: half-sent, wrong, huge and exploding calls on raw sockets, honest clients beside
them.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from lakeward.client.columns import parse_columns
from lakeward.errors import InvalidConfig, InvalidRequest, LakewardError, ServerUnavailable
from lakeward.hot.embedded.remote.failure import from_flight
from lakeward.hot.embedded.serve.budget import MemoryBudget
from lakeward.hot.embedded.serve.flightdata import write_field
from lakeward.hot.embedded.serve.grpcserver import BESIDE_BATCH, FlightLimits, TlsPair
from lakeward.hot.embedded.serve.quota import StreamQuotas
from lakeward.hot.embedded.serve.service import FlightService
from lakeward.model import Bucket, Schema, TableDescriptor, TableInfo, TablePath, new_table_id
from lakeward.protocol.auth import TokenSet
from lakeward.protocol.flight import BatchHeader, PutCommand, PutKind, log_ticket, to_bytes
from lakeward_testing.waiting import wait_until
from tests.process.http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    GREETING,
    HEADERS,
    PING,
    PREFACE,
    Frame,
    call,
    data,
    frame,
    frames,
    frames_until_end,
    message,
    reset,
)
from tests.server.test_security import self_signed
from tests.unit.hot.embedded.serve.standin import HeldStore, client_at, held_store

TOKENS = ("ann:admin:top",)
LIST = flight.Action("list-tables", b"{}")


def shown(secret: str = "top") -> flight.FlightCallOptions:
    return flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {secret}".encode())], timeout=120)


@dataclass
class Audit:
    """Who called, from where."""

    lines: list[tuple[str, str, str, str]] = field(default_factory=list)

    def flight(self, who: str, peer: str, what: str, table: str | None, result: str, *, is_change: bool) -> None:
        self.lines.append((who, peer, what, result))


@dataclass
class Door:
    service: FlightService
    audit: Audit
    host: str
    refused: list[tuple[LakewardError, str, str]]
    store: HeldStore

    @property
    def uri(self) -> str:
        return f"grpc://{self.host}:{self.service.port}"

    def peer(self) -> socket.socket:
        return socket.create_connection((self.host, self.service.port), timeout=120)

    def ask(self, **options: object) -> None:
        """An honest call."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "grpc+tls" if options else "grpc"
        with flight.FlightClient(f"{scheme}://{name}:{self.service.port}", **options) as client:
            assert len(list(client.do_action(LIST, shown()))) == 1


@contextmanager
def opened(
    host: str = "127.0.0.1",
    limits: FlightLimits | None = None,
    tokens: tuple[str, ...] = TOKENS,
    tls: TlsPair | None = None,
    quotas: StreamQuotas | None = None,
    budget: MemoryBudget | None = None,
) -> Iterator[Door]:
    audit, refused = Audit(), list[tuple[LakewardError, str, str]]()
    with held_store() as store:
        service = FlightService(
            store,
            TokenSet.parse(tokens),
            host=host,
            audit=audit,
            limits=limits,
            tls=tls,
            quotas=quotas,
            budget=budget,
            on_refused=lambda *refusal: refused.append(refusal),
        )
        try:
            yield Door(service, audit, host, refused, store)
        finally:
            service.shutdown()


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    """Little patience with silent calls; enough for honest ones on a busy machine."""
    with opened(limits=FlightLimits(header_s=1.0, idle_s=2.0)) as made:
        yield made


def say(peer: socket.socket, raw: bytes) -> list[Frame]:
    """All that is answered to someone who then says no more."""
    with suppress(OSError):  # the connection may have ended already
        peer.sendall(raw)
        peer.shutdown(socket.SHUT_WR)
    return frames_until_end(peer)


def hear(peer: socket.socket, stream_id: int) -> list[Frame]:
    """What was answered until this stream ended."""
    raw = b""
    while True:
        heard = frames(raw)
        if any(kind == HEADERS and flags & END_STREAM and id == stream_id for kind, flags, id, _ in heard):
            return heard
        piece = peer.recv(65536)
        assert piece, "the connection ended"
        raw += piece


def text_of(heard: list[Frame], stream_id: int) -> bytes:
    return b"".join(payload for kind, _, id, payload in heard if kind == HEADERS and id == stream_id)


HALF = (
    b"",
    PREFACE[:10],
    GREETING,
    GREETING + call(1, "DoPut", "top")[:20],
    GREETING + call(1, "DoPut", "top") + data(1, message(500))[:100],
    GREETING + call(1, "DoGet", "top") + data(1, message(500))[:100],
    GREETING + call(1, "DoPut", "wrong"),
    GREETING + frame(HEADERS, 0, 1, b""),
)


def test_who_sends_half_of_something_is_let_go(door: Door) -> None:
    """Half of a greeting, of headers, of a message: the call ends, then the connection."""
    peers = [door.peer() for _ in HALF]
    for peer, raw in zip(peers, HALF, strict=True):
        peer.sendall(raw)
    for peer in peers:
        with peer:
            frames_until_end(peer)
    door.ask()


BOMB = b"\x40\x01a\x7f\x81\x1e" + bytes(3968) + b"\xbe" * 9000
"""Three megabytes of headers in thirteen kilobytes."""
HUFFMAN = b"\x00\x01a" + b"\xff\xe1\x7f" + b"\x00" * 16_480
"""A value in Huffman's code that is as long as headers may be."""
WRONG = {
    "http1": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "bytes": bytes(range(256)) * 40,
    "frames": GREETING + b"\xff" * 4000,
    "pings": GREETING + frame(PING, 0, 0, bytes(8)) * 5000,
    "continuation": GREETING + frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, 0, 1, b"x" * 250) * 5000,
    "bomb": GREETING + frame(HEADERS, END_HEADERS, 1, BOMB),
    "huffman": GREETING + frame(HEADERS, 0, 1, HUFFMAN) + frame(CONTINUATION, END_HEADERS, 1, b""),
    "table": GREETING + frame(HEADERS, END_HEADERS, 1, b"\x3f\xe2\x1f\x82\x20"),
    "goaway": GREETING + frame(GOAWAY, 0, 0, bytes(8) + b"\n2026-01-01 CRITICAL forged" * 500),
    "even": GREETING + call(2, "DoGet", "top"),
}


@pytest.mark.parametrize("name", WRONG)
def test_who_speaks_wrong_reaches_nothing(door: Door, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """No call is let in, memory stays as it is, and what they send is not in the server's output."""
    before, audited = memory_kb(), len(door.audit.lines)
    with door.peer() as peer:
        heard = say(peer, WRONG[name])
    assert not any(kind == DATA for kind, *_ in heard)
    assert door.audit.lines[audited:] == []
    assert memory_kb() < before + 20_000
    door.ask()
    assert capfd.readouterr() == ("", "")


def memory_kb() -> int:
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0])


def test_many_who_send_half_cost_little_and_go(door: Door) -> None:
    before = memory_kb()
    peers = [door.peer() for _ in range(90)]
    for number, peer in enumerate(peers):
        peer.sendall([PREFACE[:10], GREETING][number % 2])
    assert memory_kb() < before + 20_000
    for peer in peers:
        with peer:
            frames_until_end(peer)
    door.ask()


def test_connections_are_counted() -> None:
    with opened(limits=FlightLimits(connections=8, header_s=30.0)) as made:
        held = [made.peer() for _ in range(8)]
        for peer in held:
            peer.sendall(GREETING)
            assert peer.recv(1)
        with made.peer() as ninth:
            assert say(ninth, GREETING) == []
        for peer in held:
            peer.close()
        wait_until(lambda: not refused_connection(made), what="a connection that is taken again")
        made.ask()


def refused_connection(door: Door) -> bool:
    with door.peer() as peer, suppress(ConnectionError):
        peer.sendall(GREETING)
        return not peer.recv(1)
    return True


def test_the_first_honest_words_are_answered_and_the_peer_is_named(door: Door) -> None:
    """A peer header of the client's own is not believed."""
    with door.peer() as peer:
        address = "{}:{}".format(*peer.getsockname())
        forged = call(1, "DoAction", "top", (b"lakeward-peer", b"10.9.8.7:1"), (b"x-forwarded-for", b"10.9.8.7"))
        body = b"\x0a\x0blist-tables"
        peer.sendall(GREETING + forged + data(1, b"\0" + len(body).to_bytes(4, "big") + body, END_STREAM))
        found = frames_until_end(peer)
    assert any(kind == DATA and stream == 1 for kind, _, stream, _ in found)
    assert found[-1][0] == GOAWAY, "without further calls the connection ends in order"
    assert ("ann", address, "action list-tables", "ok") in door.audit.lines
    assert not any("10.9.8.7" in peer for _, peer, *_ in door.audit.lines)


def test_a_refused_stream_leaves_the_connection_as_it_was(door: Door) -> None:
    with flight.FlightClient(door.uri) as client:
        for _ in range(5):
            with pytest.raises(flight.FlightUnauthenticatedError, match="no valid token"):
                list(client.do_action(LIST, shown("wrong")))
            with pytest.raises(flight.FlightServerError, match="at most 16777216 are taken"):
                client.do_get(flight.Ticket(bytes(17 << 20)), shown()).read_all()
            assert len(list(client.do_action(LIST, shown()))) == 1
    assert {error.code for error, _, _ in door.refused} == {"unauthorized"}


def test_a_message_that_says_it_is_too_long_is_refused_by_that(door: Door) -> None:
    size = (64 << 20) + BESIDE_BATCH + 1
    with door.peer() as peer:
        peer.sendall(GREETING + call(1, "DoPut", "top") + data(1, message(size, filled=False)))
        assert b"larger than max" in text_of(hear(peer, 1), 1)


def test_a_client_is_told_in_words_that_its_message_is_too_long(door: Door) -> None:
    with flight.FlightClient(door.uri) as client:
        with pytest.raises(pa.ArrowInvalid) as refused:
            client.do_get(flight.Ticket(bytes(80 << 20)), shown()).read_all()
        assert isinstance(from_flight(refused.value, "here"), InvalidRequest)


@pytest.mark.parametrize("more", [(), ((b"grpc-encoding", b"gzip"),)], ids=["unnamed", "gzip"])
def test_a_message_that_grpc_would_unpack_is_refused(door: Door, more: tuple[tuple[bytes, bytes], ...]) -> None:
    with door.peer() as peer:
        sent = call(1, "DoGet", "top", *more) + data(1, message(20, packed=1), END_STREAM)
        peer.sendall(GREETING + sent)
        assert b"ompression" in text_of(hear(peer, 1), 1)


def test_put_streams_that_send_nothing_end(door: Door) -> None:
    """With an error that clients try again on; the server's threads are free."""
    with door.peer() as peer:
        peer.sendall(GREETING + b"".join(call(1 + 2 * n, "DoPut", "top") for n in range(80)))
        wait_until(lambda: len(door.service.watch.calls) >= 80, what="a thread for each stream")
        found = frames_until_end(peer)
    ended = {stream for kind, flags, stream, _ in found if kind == HEADERS and flags & END_STREAM}
    assert ended == {1 + 2 * n for n in range(80)}
    wait_until(lambda: not door.service.watch.calls, what="the threads to end")


def test_calls_of_a_token_are_counted_on_all_its_connections() -> None:
    """What is too much is refused before the server has a thread of it; the connections and their calls stay."""
    with opened(quotas=StreamQuotas(per_token=3, in_all=5), tokens=(*TOKENS, "bob:admin:bob")) as made:
        with made.peer() as first, made.peer() as second, made.peer() as third:
            first.sendall(GREETING + call(1, "DoPut", "top") + call(3, "DoPut", "top"))
            wait_until(lambda: len(made.service.watch.calls) == 2, what="two calls")
            second.sendall(GREETING + b"".join(call(n, "DoPut", "top") for n in (1, 3, 5)))
            assert b"3 Flight calls" in text_of(hear(second, 5), 5)
            wait_until(lambda: len(made.service.watch.calls) == 3, what="one more call")
            third.sendall(GREETING + b"".join(call(n, "DoPut", "bob") for n in (1, 3, 5)))
            assert b"5 Flight calls are under way" in text_of(hear(third, 5), 5)
            wait_until(lambda: len(made.service.watch.calls) == 5, what="two of the other token")
        wait_until(lambda: not made.service.watch.calls, what="the end of calls with their connections")
        made.ask()


def test_calls_that_are_made_and_taken_back_leave_nothing(door: Door) -> None:
    before = threading.active_count()
    for secret in ("top", "wrong"):
        with door.peer() as peer:
            rapid = b"".join(call(n, "DoPut", secret) + reset(n) for n in range(1, 10_001, 2))
            with suppress(ConnectionError):
                peer.sendall(GREETING + rapid)
            ask_again(door)
    wait_until(lambda: not door.service.watch.calls, what="the end of all calls")
    assert threading.active_count() <= before + 402
    ask_again(door)


def ask_again(door: Door) -> None:
    """gRPC keeps 1,000 calls that no thread has looked at yet and cancels some of the next: clients repeat theirs."""
    with client_at(door.service.port, token="top", retry_s=120.0) as client:
        client.store.list_tables()


def make_table(door: Door, columns: str = "id BIGINT") -> TableInfo:
    descriptor = TableDescriptor(schema=Schema(columns=parse_columns(columns)), bucket_count=1)
    table = TableInfo(path=TablePath("d", "t"), table_id=new_table_id(), descriptor=descriptor)
    door.store.create_table(table)
    return table


def put_zeros(client: flight.FlightClient, table: TableInfo, rows: int) -> None:
    """A batch that is small on its way and large once it is unpacked."""
    batch = pa.record_batch({"id": pa.array([0], pa.int64()).take(pa.array([0] * rows))})
    packed = flight.FlightCallOptions(timeout=120, write_options=pa.ipc.IpcWriteOptions(compression="zstd"))
    writer, reader = client.do_put(flight.FlightDescriptor.for_command(command_of(table)), batch.schema, packed)
    with writer:
        writer.write_with_metadata(batch, to_bytes(BatchHeader(bucket=Bucket("", 0))))
        writer.done_writing()
        while reader.read() is not None:
            pass


def command_of(table: TableInfo) -> bytes:
    return to_bytes(PutCommand(table=table.path, table_id=table.table_id, kind=PutKind.APPEND, schema_id=1))


def test_a_batch_that_unpacks_into_a_large_one_is_refused_packed() -> None:
    limits = FlightLimits(batch_bytes=1 << 20)
    budget = MemoryBudget(request_bytes=1 << 20)
    with opened(tokens=(), limits=limits, budget=budget) as made, flight.FlightClient(made.uri) as client:
        table = make_table(made)
        put_zeros(client, table, 100_000)
        before = pa.total_allocated_bytes()
        with pytest.raises(flight.FlightServerError, match="at most 1048576 are taken"):
            put_zeros(client, table, 5_000_000)
        assert pa.total_allocated_bytes() < before + 50_000_000
        put_zeros(client, table, 100_000)
        assert made.store.bounds(table)[Bucket("", 0)].end == 200_000


def test_a_put_stream_that_pauses_is_tried_again_by_its_client(door: Door) -> None:
    table = make_table(door)
    batch = pa.record_batch({"id": pa.array([1], pa.int64())})
    with flight.FlightClient(door.uri) as client:
        descriptor = flight.FlightDescriptor.for_command(command_of(table))
        writer, reader = client.do_put(descriptor, batch.schema, shown())
        writer.write_with_metadata(batch, to_bytes(BatchHeader(bucket=Bucket("", 0))))
        assert reader.read() is not None
        with pytest.raises(flight.FlightError) as ended:
            while True:
                reader.read()
                writer.write_with_metadata(batch, to_bytes(BatchHeader(bucket=Bucket("", 0))))
                wait_until(lambda: not door.service.watch.calls, what="the end of the silent stream")
        assert isinstance(from_flight(ended.value, "here"), ServerUnavailable)
        with suppress(flight.FlightError, pa.ArrowException):
            writer.close()


def test_answers_that_nobody_reads_are_charged_and_end() -> None:
    """Where others wait for the memory that they hold; those go on where they were."""
    budget = MemoryBudget(total_bytes=40 << 20, patience_s=120.0)
    with (
        opened(limits=FlightLimits(header_s=1.0), tokens=(), budget=budget) as made,
        client_at(made.service.port) as client,
    ):
        table = make_table(made, "text STRING")
        batch = pa.record_batch({"text": ["x" * 40_000] * 100})
        for _ in range(8):
            made.store.append(table, Bucket("", 0), batch)
        ticket = request(to_bytes(log_ticket(table, Bucket("", 0), 0, 800)))
        unread = [made.peer() for _ in range(8)]
        for peer in unread:
            peer.sendall(GREETING + call(1, "DoGet") + data(1, ticket, END_STREAM))
        wait_until(lambda: made.service.answers.waiting > 0, what="an answer that waits for room")
        assert made.service.answers.in_use_bytes <= 40 << 20
        assert sum(b.num_rows for b in client.store.read_log(table, Bucket("", 0), 0, 800)) == 800
        for peer in unread:
            peer.close()


def request(ticket: bytes) -> bytes:
    """A gRPC message with a ticket in it."""
    body = write_field(1, ticket)
    return b"\0" + len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_tls_and_tokens(tmp_path: Path, host: str) -> None:
    cert, key = (path.read_bytes() for path in self_signed(tmp_path))
    with opened(host, tls=TlsPair(certificate=cert, key=key)) as made:
        options = {"tls_root_certs": cert, "override_hostname": "localhost"}
        made.ask(**options)
        assert made.audit.lines[-1][1].rpartition(":")[0] == (f"[{host}]" if ":" in host else host)
        with pytest.raises(flight.FlightUnavailableError):
            made.ask()
        with made.peer() as plain:
            plain.sendall(GREETING + call(1, "DoGet", "top"))
            frames_until_end(plain)
        name = f"[{host}]" if ":" in host else host
        with flight.FlightClient(f"grpc+tls://{name}:{made.service.port}", **options) as client:
            with pytest.raises(flight.FlightServerError, match="at most"):
                client.do_get(flight.Ticket(bytes(20 << 20)), shown()).read_all()
            assert len(list(client.do_action(LIST, shown()))) == 1


def test_a_certificate_that_is_none_is_said_in_words() -> None:
    pair = TlsPair(certificate=b"no", key=b"pem")
    with pytest.raises(InvalidConfig, match="certificate and key"), opened(tls=pair):
        pass


def test_a_port_in_use_is_said_in_words() -> None:
    with opened() as made, held_store() as other, pytest.raises(OSError, match="in use"):
        FlightService(other, TokenSet.parse(TOKENS), port=made.service.port)
