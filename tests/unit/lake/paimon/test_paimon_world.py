# SPDX-License-Identifier: Apache-2.0
"""A table on Paimon from the hot store on: reads of the past, a stream that begins in the lake, verify by key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.lake.paimon.plugin import load
from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward.model import BUCKET, OFFSET, TIMESTAMP, SystemClock, TablePath
from lakeward.verify import verify_table
from lakeward_testing.clock import ManualClock
from lakeward_testing.paimonforeign import PaimonForeignEngine
from tests.kit.inprocess import InProcessLakeward
from tests.unit.read.test_stream import InProcessReader

PATH = TablePath("db", "t")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[InProcessLakeward]:
    storage = load({"warehouse": str(tmp_path / "warehouse")})
    made = InProcessLakeward(tmp_path, storage, ManualClock(SystemClock().now_ms()))
    made.create(str(PATH), "id bigint not null, v string", primary_key="id", buckets=2)
    made.upsert(str(PATH), [{"id": i, "v": "old"} for i in range(20)])
    made.tier(str(PATH))
    yield made
    made.close()


def findings(world: InProcessLakeward) -> list[str]:
    certificate = verify_table(world.plugin, PATH, deep=True, clock=world.clock, open_storage=lambda _plan: world.lake)
    return [f.kind for f in certificate.all_findings]


def test_a_snapshot_of_the_past_shows_what_it_held(world: InProcessLakeward) -> None:
    head = world.lake.open_reader(world.store.load_table(PATH)).load_base().head
    world.upsert(str(PATH), [{"id": 3, "v": "new"}])
    world.delete(str(PATH), [{"id": 4}])
    world.tier(str(PATH))
    past = world.read(str(PATH), as_of=str(head)).to_table().sort_by("id")
    assert (past["id"].to_pylist(), set(past["v"].to_pylist())) == (list(range(20)), {"old"})
    now = world.read(str(PATH)).to_table().sort_by("id")
    assert now["id"].to_pylist() == [i for i in range(20) if i != 4]
    assert findings(world) == []


def test_a_stream_begins_with_the_lake_and_goes_on_with_the_changes(world: InProcessLakeward) -> None:
    world.upsert(str(PATH), [{"id": 3, "v": "new"}])
    reader = InProcessReader(world, "id", "v", "__change_type")
    first = reader.initialOffset()
    pinned = reader.latestOffset(first)
    assert sorted((r["id"], r["v"]) for r in reader.batch(first, pinned)) == [(i, "old") for i in range(20)]
    changes = reader.batch(pinned, reader.latestOffset(pinned))
    assert [(r["__change_type"], r["v"]) for r in changes] == [("-U", "old"), ("+U", "new")]


def test_verify_tells_a_row_that_others_put_in_place_of_ours(world: InProcessLakeward) -> None:
    assert findings(world) == []
    assert isinstance(world.lake, PaimonLakeStorage)
    engine = PaimonForeignEngine(world.lake.connection, PATH)
    theirs = {"id": 1_000, "v": "theirs", BUCKET: 0, OFFSET: 0, TIMESTAMP: 0}
    engine.insert(pa.Table.from_pylist([theirs], engine.schema()))
    assert findings(world) != []
