# SPDX-License-Identifier: Apache-2.0
"""What a token may hold and begin: counted, said by name, and free again."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from lakeward.errors import LakewardError, Overloaded, QuotaExceeded
from lakeward.hot.embedded.remote.failure import from_flight
from lakeward.hot.embedded.serve.budget import MemoryBudget
from lakeward.hot.embedded.serve.quota import WriterQuotas
from lakeward.model import Bucket
from lakeward.protocol.flight import BatchHeader, PutCommand, PutKind, to_bytes
from tests.unit.hot.embedded.serve.standin import Served, serving

TOKENS = ["ann:admin:top", "bob:read:eye"]


def options(secret: str) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {secret}".encode())], timeout=120)


def test_a_token_holds_its_share_of_the_memory_and_no_more() -> None:
    budget = MemoryBudget(total_bytes=100, request_bytes=60, token_bytes=60, patience_s=0.01)
    ann, bob = budget.of("ann"), budget.of("bob")
    with ann.hold(50, "put"):
        with pytest.raises(QuotaExceeded, match="'ann' has 50 bytes under way, at most 60"), ann.hold(11, "put"):
            pass
        with bob.hold(50, "put"), pytest.raises(Overloaded), ann.hold(10, "put"):
            pass
        with ann.hold(10, "put"):
            assert budget.in_use_bytes == 60
    assert budget.in_use_bytes == 0


def test_writers_that_a_token_begins_are_counted_in_a_span_of_time() -> None:
    now = [0.0]
    quotas = WriterQuotas(per_token=2, span_s=600.0, clock=lambda: now[0])
    for name in ("ann", "ann", "bob"):
        quotas.begin(name)
    with pytest.raises(QuotaExceeded, match="2 new writers of buckets in 600 s"):
        quotas.begin("ann")
    quotas.begin("bob")
    now[0] = 601.0
    quotas.begin("ann")


def put(served: Served, raw: flight.FlightClient, writer_id: int, sequence: int) -> LakewardError | None:
    info = served.table("d.t").info
    command = PutCommand(table=info.path, table_id=info.table_id, kind=PutKind.APPEND, schema_id=1, writer=writer_id)
    rows = pa.record_batch({"id": pa.array([1]), "name": pa.array(["x"])})
    writer, reader = raw.do_put(flight.FlightDescriptor.for_command(to_bytes(command)), rows.schema)
    try:
        writer.write_with_metadata(rows, to_bytes(BatchHeader(bucket=Bucket("", 0), sequence=sequence)))
        writer.done_writing()
        reader.read()
        writer.close()
    except flight.FlightError as error:
        return from_flight(error, "here")
    return None


def test_a_peer_cannot_begin_as_many_writers_as_it_likes() -> None:
    with serving() as served, flight.FlightClient(f"grpc://127.0.0.1:{served.port}") as raw:
        served.service.writers = WriterQuotas(per_token=2)
        assert [put(served, raw, writer, 0) for writer in (1, 2)] == [None, None]
        refused = put(served, raw, 3, 0)
        assert isinstance(refused, QuotaExceeded)
        assert (refused.retryable, "new writers" in refused.what) == (True, True)
        assert put(served, raw, 1, 1) is None, "one that has begun goes on"


def act(raw: flight.FlightClient, action: str, secret: str, **body: object) -> object:
    (answer,) = raw.do_action(flight.Action(action, json.dumps(body).encode()), options(secret))
    return json.loads(answer.body.to_pybytes())


def test_a_snapshot_that_was_not_taken_costs_nothing() -> None:
    with serving(tokens=TOKENS) as served, flight.FlightClient(f"grpc://127.0.0.1:{served.port}") as raw:
        served.table("d.t", primary_key=("id",))
        for invented in ({"table": "d.none", "holder": "h"}, {"table": "d.t", "holder": "h" * 201}):
            with pytest.raises(flight.FlightServerError):
                act(raw, "take-snapshot", "eye", bucket="0", **invented)
        assert served.service.snapshots.held == 0
        act(raw, "take-snapshot", "eye", table="d.t", bucket="0", holder="h")
        assert served.service.snapshots.held == 1


def test_nobody_releases_what_another_holds() -> None:
    with serving(tokens=TOKENS) as served, flight.FlightClient(f"grpc://127.0.0.1:{served.port}") as raw:
        served.table("d.t", primary_key=("id",))
        act(raw, "take-snapshot", "eye", table="d.t", bucket="0", holder="round")
        act(raw, "release-snapshots", "top", table="d.t", holder="round")
        act(raw, "release-snapshots", "top", table="d.t", holder="bob:round")
        assert served.store.released == ["ann:round", "ann:bob:round"]
        assert served.service.snapshots.held == 1
