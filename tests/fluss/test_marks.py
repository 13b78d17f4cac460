# SPDX-License-Identifier: Apache-2.0
"""What a round takes from the log besides its rows: a mark of every bucket, and the time of its last batch, which Fluss
is told.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from lakeward.hot.fluss.logmarks import MARKS_KEY
from lakeward.hot.fluss.messages import COMMIT_LAKE, Api
from lakeward.hot.fluss.protobuf import Message
from lakeward.protocol.heartbeat import TableFinished
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import EVENTS, Append, MakeTable
from tests.fluss.world import FlussWorld

pytestmark = [pytest.mark.fluss, pytest.mark.soak]


def test_marks_and_times_of_every_bucket(world: FlussWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, sent = OnDemand(world), list[Message]()
    servers = rounds.plugin.servers
    call = servers.call_coordinator

    def note(api: Api, values: Mapping[str, Any], timeout_s: float | None = None) -> Message:
        sent.extend(values["tables"] if api is COMMIT_LAKE else [])
        return call(api, values, timeout_s)

    monkeypatch.setattr(servers, "call_coordinator", note)
    rows = pa.RecordBatch.from_pylist([{"id": n, "name": f"event {n}"} for n in range(4_000)], schema=EVENTS)
    world.produce(
        MakeTable(name="marked", schema=EVENTS, buckets=4, freshness="1h"), Append(table="marked", rows=rows, chunk=100)
    )
    ends = world.ends("marked")
    assert isinstance(rounds.run("marked"), TableFinished)
    rounds.close()
    head = world.lake("marked").open_reader(world.table("marked")).load_snapshot()
    assert head is not None
    assert [(number, offset) for _, number, offset, _ in json.loads(head.summary[MARKS_KEY])] == [
        (b.number, o) for b, o in ends.items()
    ]
    times = {r["__bucket"]: r["__timestamp"] for r in world.rows("marked").sort_by("__offset").to_pylist()}
    (told,) = sent
    assert {b["bucket"]: b["max_timestamp"] for b in told["buckets"]} == {
        n: round(t.timestamp() * 1000) for n, t in times.items()
    }
