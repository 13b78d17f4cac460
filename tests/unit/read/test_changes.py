# SPDX-License-Identifier: Apache-2.0
"""Changes from anywhere: the lake first, then the log; what is kept nowhere is said with the earliest that is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakeward.errors import HistoryGone, InvalidRequest
from lakeward.hot.embedded.options import StoreOptions
from lakeward.lake.memory.plugin import MemoryLakeStorage
from lakeward.model import Bucket, Content, OffsetMap, OffsetRange, SideName, TablePath
from lakeward.protocol.operate import ResyncChoice
from lakeward.protocol.tables import AlterTable
from lakeward.read.arrow import open_read, request_of
from lakeward.read.changes import parse_point, plan_ranges
from lakeward.read.piece import ReadPiece, plan_pieces, read_piece
from lakeward_testing.clock import ManualClock
from tests.kit.inprocess import InProcessLakeward
from tests.property.union_program import memory_lake
from tests.unit.read.conftest import SMALL_SEGMENTS
from tests.unit.read.test_union import cut_log

PATH, B0 = "db.t", Bucket("", 0)
CHANGES = SideName("default", Content.CHANGELOG)
ON: dict[str, Any] = {"table.datalake.changelog": "default"}
ROWS = 200


def fill(world: InProcessLakeward, clock: ManualClock, **properties: Any) -> list[tuple[str, int, str]]:
    """Two hundred upserts of twenty keys; the changes that they are."""
    world.create(PATH, "id bigint not null, v string", primary_key="id", **properties)
    state: dict[int, str] = {}
    expected: list[tuple[str, int, str]] = []
    for i in range(ROWS):
        clock.advance(1)
        key, value = i % 20, f"{i:050}"
        world.upsert(PATH, [{"id": key, "v": value}])
        before = [("update_before", key, state[key])] if key in state else []
        expected += [*before, ("update_after" if before else "insert", key, value)]
        state[key] = value
    return expected


def seen(world: InProcessLakeward, *places: Any) -> list[tuple[str, int, str]]:
    rows = world.changes(PATH, *places).to_table().to_pylist()
    offsets = [r["__offset"] for r in rows]
    assert offsets == sorted(set(offsets)), "in order, each once"
    return [(r["__change_type"], r["id"], r["v"]) for r in rows]


def test_changes_come_from_the_lake_and_then_from_the_log(world: InProcessLakeward, clock: ManualClock) -> None:
    expected = fill(world, clock, **ON)
    assert seen(world) == expected, "from the log alone"
    began = clock.now_ms()
    world.tier(PATH, CHANGES)
    world.tier(PATH)
    assert cut_log(world, clock, PATH) > 100
    world.delete(PATH, [{"id": 3}])
    expected.append(("delete", 3, f"{183:050}"))
    assert seen(world) == expected
    assert seen(world, OffsetMap({B0: 17})) == expected[17:]
    assert seen(world, OffsetMap({B0: 17}), OffsetMap({B0: 40})) == expected[17:40]
    tenth = datetime.fromtimestamp(began / 1000, UTC) - timedelta(seconds=ROWS - 10)
    assert seen(world, tenth, tenth + timedelta(seconds=1)) == expected[9:10]
    assert seen(world, "1 d") == expected[-1:]
    snapshot = world.lake.open_reader(world.store.load_table(TablePath.parse(PATH))).snapshots()[-1]
    assert seen(world, snapshot.snapshot_id) == expected[-1:]
    assert seen(world, "latest") == []


def test_without_a_changelog_what_is_gone_from_the_log_is_said(world: InProcessLakeward, clock: ManualClock) -> None:
    expected = fill(world, clock)
    world.tier(PATH)
    start = cut_log(world, clock, PATH)
    assert start > 100
    assert seen(world) == expected[start:], "earliest is what is kept"
    with pytest.raises(HistoryGone) as gone:
        seen(world, OffsetMap({B0: 17}))
    assert (gone.value.since, gone.value.earliest) == ("offset 17", start)
    with pytest.raises(HistoryGone, match=f"the earliest that is kept is offset {start}, of 20"):
        seen(world, "30 d")
    assert seen(world, OffsetMap({B0: start})) == expected[start:]


def test_the_earliest_moment_that_is_said_is_one_for_all_buckets(world: InProcessLakeward, clock: ManualClock) -> None:
    table = world.create(PATH, "id bigint not null, v string", primary_key="id", buckets=2)
    keys: dict[Bucket, int] = {}
    for key in range(10):
        ends = {b: v.end for b, v in world.store.bounds(table).items()}
        world.upsert(PATH, [{"id": key, "v": ""}])
        keys |= {b: key for b, v in world.store.bounds(table).items() if v.end > ends[b]}
    for bucket in sorted(keys):  # the log of the second begins later
        for i in range(ROWS):
            clock.advance(1)
            world.upsert(PATH, [{"id": keys[bucket], "v": f"{i:050}"}])
    world.tier(PATH)
    cut_log(world, clock, PATH)
    assert all(bounds.start > 100 for bounds in world.store.bounds(table).values())
    with pytest.raises(HistoryGone) as gone:
        world.changes(PATH, "30 d")
    assert world.changes(PATH, datetime.fromisoformat(gone.value.moment)).to_table().num_rows > 0


def test_a_changelog_that_was_off_for_too_long_says_its_gap(world: InProcessLakeward, clock: ManualClock) -> None:
    expected = fill(world, clock, **ON)
    world.tier(PATH, CHANGES)
    path = TablePath.parse(PATH)
    world.federation.alter(path, AlterTable(properties={"table.datalake.changelog": "none"}))
    for i in range(ROWS):
        world.upsert(PATH, [{"id": 99, "v": f"{i:050}"}])
    world.tier(PATH)
    start = cut_log(world, clock, PATH)
    assert start > len(expected)
    world.federation.alter(path, AlterTable(properties=dict(ON)))
    status = world.coordinator.views.table(path, CHANGES)
    assert f"the lake ends at {len(expected)} and the log begins at {start}" in str(status.reason)
    world.coordinator.operations.resync(path, ResyncChoice.GAP, CHANGES)
    world.tier(PATH, CHANGES)
    with pytest.raises(HistoryGone) as gone:
        seen(world, OffsetMap({B0: 0}))
    assert gone.value.earliest == start
    assert len(seen(world)) == world.store.bounds(world.store.load_table(path))[B0].end - start
    assert seen(world, OffsetMap({B0: 0}), OffsetMap({B0: len(expected)})) == expected, "below the gap all is there"


def test_ranges_of_buckets_that_came_later_and_of_places_beyond_the_end() -> None:
    late, ends = Bucket("", 1), {B0: 10, Bucket("", 1): 5}
    assert plan_ranges({B0: 4}, {B0: 7}, ends) == {B0: OffsetRange(4, 7), late: OffsetRange(0, 5)}
    assert plan_ranges({B0: 12}, {late: 0}, ends) == {}


def test_places_as_people_write_them() -> None:
    at = datetime(2026, 11, 16, 12, tzinfo=UTC)
    now_ms = int(at.timestamp() * 1000)
    assert parse_point("1 h", now_ms) == at - timedelta(hours=1)
    assert parse_point("2026-11-16T12:00", now_ms) == at
    assert parse_point("4711", now_ms) == "4711"
    assert parse_point("earliest", now_ms) == "earliest"
    with pytest.raises(InvalidRequest, match=r"since or until 'yesterday': it is neither how long ago \(1h, 30 min\)"):
        parse_point("yesterday", now_ms)


def test_a_pk_table_as_of_any_moment_between_snapshots(tmp_path: Path, clock: ManualClock) -> None:
    lake = memory_lake(tmp_path)
    assert isinstance(lake, MemoryLakeStorage)
    lake.lake.clock = clock  # snapshots are of the same days as the rows
    world = InProcessLakeward(tmp_path, lake, clock, StoreOptions.with_settings(SMALL_SEGMENTS))
    world.create(PATH, "id bigint not null, v string", primary_key="id", **ON)
    states: list[tuple[datetime, dict[int, str]]] = []
    state: dict[int, str] = {}
    for i in range(ROWS):
        clock.advance(1)
        if i % 7 == 6:
            world.delete(PATH, [{"id": i % 5}])
            state.pop(i % 5, None)
        else:
            world.upsert(PATH, [{"id": i % 5, "v": f"{i:050}"}])
            state[i % 5] = f"{i:050}"
        states.append((datetime.fromtimestamp(clock.now_ms() / 1000, UTC), dict(state)))
        if i in (60, 120):
            world.tier(PATH)
    world.tier(PATH, CHANGES)
    world.tier(PATH)
    assert cut_log(world, clock, PATH) > 100
    table = world.store.load_table(TablePath.parse(PATH))
    assert [s for s in lake.open_reader(table).snapshots() if s.committed_at_ms < states[130][0].timestamp() * 1000]
    for moment, expected in states[::9]:
        rows = world.read(PATH, as_of=moment).to_table().to_pylist()
        assert {r["id"]: r["v"] for r in rows} == expected, moment
        assert len(rows) == len(expected)
        assert {r["id"]: r["v"] for r in in_pieces(world, moment)} == expected, "as Spark's executors read it"
    assert world.read(PATH, as_of=states[50][0], filter=[("id", "=", 1)]).to_table().num_rows == (1 in states[50][1])
    world.close()


def in_pieces(world: InProcessLakeward, moment: datetime) -> list[dict[str, Any]]:
    opened = open_read(world.plugin, request_of(PATH, as_of=moment), world.open_lake)
    with opened.lease:
        pieces = [ReadPiece.from_bytes(p.to_bytes()) for p in plan_pieces(world.plugin, opened)]
        batches = [b for p in pieces for b in read_piece(p, ["id", "v"], plugins=world.world.plugins)]
    return [row for batch in batches for row in batch.to_pylist()]


def test_without_a_changelog_two_snapshots_tell_what_changed(world: InProcessLakeward, clock: ManualClock) -> None:
    fill(world, clock)
    world.tier(PATH)
    lake = world.lake.open_reader(world.store.load_table(TablePath.parse(PATH)))
    first = lake.snapshots()[-1].snapshot_id
    for i in range(ROWS):
        world.upsert(PATH, [{"id": 100 + i % 20, "v": f"{i:050}"}])
    world.delete(PATH, [{"id": 1}])
    world.upsert(PATH, [{"id": 2, "v": "new"}])
    world.tier(PATH)
    second = lake.snapshots()[-1].snapshot_id
    assert cut_log(world, clock, PATH) > 500
    world.upsert(PATH, [{"id": 3, "v": "hot"}])
    with pytest.raises(HistoryGone):
        seen(world, OffsetMap({B0: 17}))
    rows = world.changes(PATH, first).to_table().to_pylist()
    told = [(r["__change_type"], r["id"], r["v"]) for r in rows]
    assert [t for t in told if t[0] == "insert"] == [("insert", 100 + i % 20, f"{i:050}") for i in range(180, 200)]
    assert [t for t in told if t[0] != "insert"] == [
        ("update_before", 2, f"{182:050}"),
        ("update_after", 2, "new"),
        ("delete", 1, f"{181:050}"),
        ("update_before", 3, f"{183:050}"),
        ("update_after", 3, "hot"),
    ]
    assert [r["__offset"] for r in rows] == sorted(r["__offset"] for r in rows)
    between = world.changes(PATH, first, second).to_table()
    assert between.num_rows == len(rows) - 2, "what the log has since is not in it"
