# SPDX-License-Identifier: Apache-2.0
"""What a round takes from the log besides its rows: a mark of every bucket, and the time of its last batch, which Fluss
is told.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from lakeward.hot.fluss.logmarks import MARKS_KEY
from lakeward.model import Bucket
from lakeward.protocol.heartbeat import TableFinished
from lakeward_testing.faults import Faults
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import EVENTS, Append, MakeTable
from tests.fluss.world import FlussWorld

pytestmark = [pytest.mark.fluss, pytest.mark.soak]


def test_marks_and_times_of_every_bucket(world: FlussWorld) -> None:
    rounds, told = OnDemand(world), list[dict[Bucket, int]]()

    def note(facts: dict[str, Any]) -> bool:
        told.append(facts["times"])
        return False

    rows = pa.RecordBatch.from_pylist([{"id": n, "name": f"event {n}"} for n in range(4_000)], schema=EVENTS)
    world.produce(
        MakeTable(name="marked", schema=EVENTS, buckets=4, freshness="1h"), Append(table="marked", rows=rows, chunk=100)
    )
    ends = world.ends("marked")
    with Faults() as faults:
        faults.arm("fluss.before-register", when=note)
        assert isinstance(rounds.run("marked"), TableFinished)
    rounds.close()
    head = world.lake("marked").open_reader(world.table("marked")).load_snapshot()
    assert head is not None
    assert [(number, offset) for _, number, offset, _ in json.loads(head.summary[MARKS_KEY])] == [
        (b.number, o) for b, o in ends.items()
    ]
    store, table = world.plugin.store(), world.table("marked")
    newest = {b: pa.Table.from_batches(list(store.read_log(table, b, end - 1, end))) for b, end in ends.items()}
    times = {b: rows.column("__timestamp").to_pylist()[-1] for b, rows in newest.items()}
    assert told == [{b: round(t.timestamp() * 1000) for b, t in times.items()}]
