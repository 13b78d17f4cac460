# SPDX-License-Identifier: Apache-2.0
"""Flight for strangers and for those with few rights: refused by their headers, bounded before anything is unpacked."""

from __future__ import annotations

import base64
import io
import json
import socket

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from lakeward.errors import Forbidden, InvalidRequest, LakeUnavailable, QuotaExceeded
from lakeward.hot.embedded.remote.failure import from_flight
from lakeward.hot.embedded.serve.declared import declared_bytes
from lakeward.hot.embedded.serve.quota import SnapshotQuotas, StreamQuotas
from lakeward.model import Bucket, TablePath
from lakeward.protocol.flight import PutCommand, PutKind, Read, Ticket, to_bytes
from tests.unit.hot.embedded.serve.standin import serving

TOKENS = ["ann:admin:top", "sam:write:eye:shop.*"]
SCHEMA = pa.schema([("id", pa.int64())])


def options(secret: str) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {secret}".encode())], timeout=120)


def stream(batch: pa.RecordBatch, codec: str | None) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream_id.to_bytes(4, "big") + payload


def header(name: str, value: str) -> bytes:
    """HPACK: a literal that is not indexed, in plain text."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def open_put(port: int, secret: str) -> socket.socket:
    """A put stream whose headers are sent, and nothing else, ever."""
    peer = socket.create_connection(("127.0.0.1", port), timeout=120)
    named = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/arrow.flight.protocol.FlightService/DoPut",
        ":authority": "here",
        "content-type": "application/grpc",
        "te": "trailers",
        "authorization": f"Bearer {secret}",
    }
    headers = b"".join(header(k, v) for k, v in named.items())
    peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 4, 1, headers))
    return peer


def ends(peer: socket.socket) -> bool:
    """The server ended the stream: headers with END_STREAM, or a reset."""
    held = b""
    while True:
        while len(held) >= 9 and len(held) >= 9 + int.from_bytes(held[:3], "big"):
            size, kind, flags, stream_id = int.from_bytes(held[:3], "big"), held[3], held[4], held[8]
            if stream_id == 1 and (kind == 3 or (kind == 1 and flags & 1)):
                return True
            held = held[9 + size :]
        got = peer.recv(65536)
        if not got:
            return False
        held += got


def test_a_put_stream_that_sends_nothing_is_refused_by_its_token() -> None:
    with serving(tokens=TOKENS) as served:
        for _ in range(5):
            with open_put(served.port, "wrong") as peer:
                assert ends(peer)


def test_rights_are_for_tables() -> None:
    with serving(tokens=TOKENS) as served, flight.FlightClient(f"grpc://127.0.0.1:{served.port}") as raw:
        for name in ("shop.a", "hr.pay"):
            served.table(name)
        hidden = served.store.load_table(TablePath("hr", "pay"))
        (answer,) = raw.do_action(flight.Action("list-tables", b"{}"), options("eye"))
        assert b"shop.a" in answer.body.to_pybytes()
        assert b"hr.pay" not in answer.body.to_pybytes()
        with pytest.raises(flight.FlightUnauthorizedError, match=r"hr\.pay"):
            list(raw.do_action(flight.Action("bounds", b'{"table": "hr.pay"}'), options("eye")))
        ticket = Ticket.of(Read.TAIL, hidden)
        with pytest.raises(flight.FlightUnauthorizedError, match=r"hr\.pay"):
            raw.do_get(flight.Ticket(to_bytes(ticket)), options("eye")).read_all()
        command = PutCommand(table=hidden.path, table_id=hidden.table_id, kind=PutKind.APPEND, schema_id=1)
        writer, reader = raw.do_put(flight.FlightDescriptor.for_command(to_bytes(command)), SCHEMA, options("eye"))
        assert reader.read() is None
        with pytest.raises(flight.FlightUnauthorizedError) as refused:
            writer.close()
        assert isinstance(from_flight(refused.value, "here"), Forbidden)


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
def test_a_stream_says_how_large_it_is(codec: str | None) -> None:
    batch = pa.record_batch({"id": pa.array([0] * 1_000_000, pa.int64()), "name": pa.array(["x"] * 1_000_000)})
    raw = stream(batch, codec)
    unpacked = batch.get_total_buffer_size()
    assert unpacked <= declared_bytes(raw, "it") <= unpacked + 2_000_000
    words = pa.record_batch({"d": pa.array(["a" * 1000] * 5).dictionary_encode()})
    assert declared_bytes(stream(words, codec), "it") >= 1000


def test_what_is_no_stream_is_said_in_words() -> None:
    good = stream(pa.record_batch({"id": pa.array([1, 2, 3])}), "zstd")
    for raw in (b"\xff" * 64, good[: len(good) // 2], b"\xff\xff\xff\xff\x10\0\0\0" + b"\x7f" * 64):
        with pytest.raises(InvalidRequest):
            declared_bytes(raw, "it")


def test_a_small_lookup_that_unpacks_into_a_large_one_is_refused() -> None:
    zeros = pa.record_batch({"id": pa.array([0], pa.int64()).take(pa.array([0] * 20_000_000))})
    keys = base64.b64encode(stream(zeros, "zstd")).decode()
    assert len(keys) < 100_000
    with serving() as served, flight.FlightClient(f"grpc://127.0.0.1:{served.port}") as raw:
        table = served.table("d.t")
        ticket = Ticket.of(Read.LOOKUP, table.info, bucket=Bucket("", 0), keys=keys)
        before = pa.total_allocated_bytes()
        with pytest.raises(flight.FlightServerError, match="at most"):
            raw.do_get(flight.Ticket(to_bytes(ticket))).read_all()
        assert pa.total_allocated_bytes() < before + 50_000_000


def test_calls_of_a_token_are_counted() -> None:
    quotas = StreamQuotas(per_token=2)
    quotas.enter("ann")
    quotas.enter("ann")
    with pytest.raises(QuotaExceeded, match="2 Flight calls"):
        quotas.enter("ann")
    quotas.enter("bob")
    quotas.leave("ann")
    quotas.enter("ann")


def test_snapshots_of_a_bucket_are_counted_while_they_last() -> None:
    now = [0.0]
    quotas, table, bucket = SnapshotQuotas(per_bucket=2, clock=lambda: now[0]), TablePath("d", "t"), Bucket("", 0)
    for holder in ("a", "b", "a"):
        quotas.take("ann", table, bucket, holder)
    with pytest.raises(QuotaExceeded, match="KV snapshots of bucket 0"):
        quotas.take("ann", table, bucket, "c")
    quotas.take("ann", table, Bucket("", 1), "c")
    quotas.take("bob", table, bucket, "c")
    quotas.release("ann", table, "a")
    quotas.take("ann", table, bucket, "c")
    now[0] = 1e9
    quotas.take("ann", table, bucket, "d")


def test_a_peer_cannot_pin_as_many_snapshots_as_it_likes() -> None:
    with serving() as served, flight.FlightClient(f"grpc://127.0.0.1:{served.port}") as raw:
        served.table("d.t", primary_key=("id",))

        def take(holder: int) -> None:
            body = {"table": "d.t", "bucket": "0", "holder": f"h{holder}"}
            list(raw.do_action(flight.Action("take-snapshot", json.dumps(body).encode())))

        with pytest.raises(flight.FlightServerError, match="KV snapshots"):
            for holder in range(100):
                take(holder)


def test_an_error_carries_no_login() -> None:
    def fail() -> None:
        raise LakeUnavailable(lake="x", what="read", reason="no answer from http://me:hunter2@lake/x")

    with serving() as served, flight.FlightClient(f"grpc://127.0.0.1:{served.port}") as raw:
        served.store.before_list = fail
        with pytest.raises(flight.FlightServerError) as told:
            list(raw.do_action(flight.Action("list-tables", b"{}")))
    assert "hunter2" not in str(told.value)
    assert b"hunter2" not in told.value.extra_info
