# SPDX-License-Identifier: Apache-2.0
"""A changelog's own retention: old files leave it as a whole, in every format, and who asks for them is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeward.errors import HistoryGone, InvalidTable
from lakeward.hot.embedded.options import StoreOptions
from lakeward.lake.memory.plugin import CAPABILITIES, MemoryLakeStorage
from lakeward.lake.memory.table import MemoryLake
from lakeward.model import (
    Bucket,
    Content,
    LedgerKind,
    OffsetMap,
    OffsetRange,
    SideName,
    SystemClock,
    TableInfo,
    TablePath,
    side_table,
)
from lakeward.model.side import COMPACT
from lakeward.protocol.heartbeat import TableFinished
from lakeward.protocol.tables import AlterTable
from lakeward.spi import (
    LakeCatalog,
    LakeCommitter,
    LakeFile,
    LakeMaintenance,
    LakeReader,
    LakeStorage,
    LakeWriter,
    WriteTask,
)
from lakeward.tiering.compact.retention import Retention, dropped_ranges
from lakeward.verify.table import verify_table
from lakeward_testing.clock import ManualClock
from lakeward_testing.faults import Faults
from tests.kit.inprocess import InProcessLakeward
from tests.property.union_program import delta_lake, hudi_lake, iceberg_lake, lance_lake, memory_lake, paimon_lake
from tests.unit.read.conftest import SMALL_SEGMENTS
from tests.unit.read.test_union import cut_log

PATH, B0 = "db.t", Bucket("", 0)
CHANGES = SideName("default", Content.CHANGELOG)
LAKES = [memory_lake, iceberg_lake, delta_lake, paimon_lake, lance_lake, hudi_lake]
RETENTION = "table.datalake.changelog.retention"
ON: dict[str, Any] = {"table.datalake.changelog": "default", RETENTION: "1 h"}
HALF_S = 1_800


@pytest.fixture
def world(tmp_path: Path) -> Iterator[InProcessLakeward]:
    made = open_world(tmp_path, memory_lake)
    yield made
    made.close()


def open_world(folder: Path, make: Callable[[Path], LakeStorage]) -> InProcessLakeward:
    return InProcessLakeward(
        folder, make(folder), ManualClock(SystemClock().now_ms()), StoreOptions.with_settings(SMALL_SEGMENTS)
    )


def fill(world: InProcessLakeward, each: int = 2, **properties: Any) -> None:
    """A file of so many rows in the changelog every half hour."""
    world.create(PATH, "id bigint not null, v string", primary_key="id", **ON | properties)
    for n in range(3):
        for start in range(0, each, 10):
            world.upsert(PATH, [{"id": 100 * n + i, "v": f"{i:050}"} for i in range(start, min(each, start + 10))])
        world.tier(PATH, CHANGES)
        advance(world, HALF_S)


def advance(world: InProcessLakeward, seconds: float) -> None:
    assert isinstance(world.clock, ManualClock)
    world.clock.advance(seconds)


def lake_offsets(world: InProcessLakeward) -> list[int]:
    rows = world.read(PATH, lake=str(CHANGES), system_columns=True, mode="lake").to_table()
    return sorted(rows.column("__offset").to_pylist())


def dropped(world: InProcessLakeward) -> list[OffsetRange]:
    ledger = world.coordinator.ledger(TablePath.parse(PATH), CHANGES)
    return [e.range for e in ledger if e.kind is LedgerKind.DROPPED]


def check_verified(world: InProcessLakeward) -> None:
    certificate = verify_table(
        world.plugin, TablePath.parse(PATH), deep=True, side=CHANGES, open_storage=lambda _plan: world.lake
    )
    assert certificate.holds, certificate.all_findings


@pytest.mark.parametrize("make", LAKES, ids=lambda m: m.__name__)
def test_files_over_their_time_go_in_every_format(tmp_path: Path, make: Callable[[Path], LakeStorage]) -> None:
    world = open_world(tmp_path, make)
    fill(world)
    assert lake_offsets(world) == [0, 1, 2, 3, 4, 5]
    advance(world, 60)
    end = world.compact(PATH, CHANGES)
    assert isinstance(end, TableFinished)
    assert end.result is not None
    assert (end.result.files_replaced, end.result.files, end.result.bytes_written) == (2, 1, 0)
    assert lake_offsets(world) == [4, 5]
    table = side_table(world.store.load_table(TablePath.parse(PATH)), CHANGES)
    reader = world.lake.open_reader(table)
    head, base = reader.load_snapshot(), reader.load_base()
    assert head is not None
    assert make is lance_lake or head.operation in ("delete", "overwrite"), "every engine sees that rows went"
    assert (head.lake_rows, base.offsets, reader.totals().rows) == (2, OffsetMap({B0: 6}), 2)
    assert dropped(world) == [OffsetRange(0, 4)]
    check_verified(world)
    world.upsert(PATH, [{"id": 1, "v": "new"}])
    world.tier(PATH, CHANGES)
    assert lake_offsets(world) == [4, 5, 6, 7]
    assert world.changes(PATH, OffsetMap({B0: 0})).to_table().num_rows == 8, "the log has them still"
    check_verified(world)
    world.close()


def test_what_neither_lake_nor_log_keeps_is_said(world: InProcessLakeward) -> None:
    fill(world, each=100)
    world.tier(PATH)
    assert isinstance(world.clock, ManualClock)
    advance(world, 60)
    world.compact(PATH, CHANGES)
    start = cut_log(world, world.clock, PATH, days=8)
    assert 200 < start < 300
    for since in (OffsetMap({B0: 17}), "30 d"):
        with pytest.raises(HistoryGone) as gone:
            world.changes(PATH, since)
        assert gone.value.earliest == 200
    rows = world.changes(PATH).to_table().column("__offset").to_pylist()
    assert rows == list(range(200, 300)), "earliest is what is kept"
    assert world.changes(PATH, OffsetMap({B0: 250})).to_table().num_rows == 50
    world.compact(PATH, CHANGES)
    assert lake_offsets(world) == []
    with pytest.raises(HistoryGone) as gone:
        world.changes(PATH, OffsetMap({B0: 200}))
    assert gone.value.earliest == start, "from there on the log has it"
    assert world.changes(PATH).to_table().column("__offset").to_pylist() == list(range(start, 300))
    check_verified(world)


def test_it_falls_due_every_hour_without_new_files(world: InProcessLakeward) -> None:
    three: dict[str, Any] = {RETENTION: "3 h"}
    fill(world, **three)
    for hour in range(4):
        while (work := world.take(PATH, COMPACT, CHANGES)) is not None:
            world.run(work)
        assert (len(lake_offsets(world)) > 0) == (hour < 3)
        advance(world, 3_700)


def test_a_crash_before_the_commit_only_delays_it(world: InProcessLakeward) -> None:
    fill(world)
    with Faults() as faults:
        faults.arm("compact.before-lake-commit")
        world.compact(PATH, CHANGES)
    assert lake_offsets(world) == [0, 1, 2, 3, 4, 5]
    assert dropped(world) == [OffsetRange(0, 2)], "said before it is done"
    check_verified(world)
    advance(world, 60)
    world.compact(PATH, CHANGES)
    assert lake_offsets(world) == [4, 5]
    check_verified(world)


def test_a_crash_before_it_is_said_lets_nothing_go(world: InProcessLakeward) -> None:
    fill(world)
    with Faults() as faults:
        faults.arm("compact.before-dropped")
        world.compact(PATH, CHANGES)
    assert lake_offsets(world) == [0, 1, 2, 3, 4, 5]
    assert dropped(world) == []
    advance(world, 60)
    world.compact(PATH, CHANGES)
    assert lake_offsets(world) == [4, 5]
    check_verified(world)


class FixedFiles(LakeStorage):
    """A lake whose files Lakeward cannot rewrite."""

    name, capabilities = "fixed", CAPABILITIES

    def __init__(self) -> None:
        self._lake = MemoryLakeStorage(MemoryLake())

    def catalog(self) -> LakeCatalog:
        return self._lake.catalog()

    def open_writer(self, task: WriteTask) -> LakeWriter:
        return self._lake.open_writer(task)

    def open_committer(self, table: TableInfo) -> LakeCommitter:
        return self._lake.open_committer(table)

    def open_reader(self, table: TableInfo) -> LakeReader:
        return self._lake.open_reader(table)

    def open_maintenance(self, table: TableInfo) -> LakeMaintenance:
        return self._lake.open_maintenance(table)


def test_without_a_changelog_or_where_files_stay_it_is_refused(tmp_path: Path) -> None:
    world = open_world(tmp_path, lambda _: FixedFiles())
    with pytest.raises(InvalidTable, match="the table has no changelog"):
        world.create(PATH, "id bigint not null", primary_key="id", **{k: v for k, v in ON.items() if k == RETENTION})
    world.create(PATH, "id bigint not null", primary_key="id", **{k: v for k, v in ON.items() if k != RETENTION})
    words = "fixed has no files that we may take out again: its changelogs stay for ever"
    with pytest.raises(InvalidTable, match=words):
        world.federation.alter(TablePath.parse(PATH), AlterTable(properties={RETENTION: "1 h"}))
    with pytest.raises(InvalidTable, match=words):
        world.create("db.u", "id bigint not null", primary_key="id", **ON)
    world.close()


def file(path: str, start: int, stop: int | None) -> LakeFile:
    offsets = None if stop is None else OffsetRange(start, stop)
    return LakeFile(path=path, bucket=B0, record_count=1, size_bytes=1, offsets=offsets)


def test_only_the_oldest_files_go_and_merges_stay_within_an_eighth() -> None:
    files = [file("c", 5, 9), file("a", 0, 2), file("b", 2, 5), file("d", 9, 10)]
    kept = Retention(keep_ms=800, now_ms=2_000, newest_ms={"a": 1_000, "b": 1_199, "c": 1_250, "d": 1_100})
    over = kept.over(files)
    assert [f.path for f in over[B0]] == ["a", "b"], "d lies behind a younger one"
    assert dropped_ranges(over, files, {B0: 12}) == {B0: OffsetRange(0, 5)}
    assert dropped_ranges({B0: files[1:3]}, files[1:3], {B0: 12}) == {B0: OffsetRange(0, 12)}
    assert [[f.path for f in part] for part in kept.windows(files)] == [["a"], ["b", "d"], ["c"]]
    assert kept.over([*files, file("e", 0, None)]) == {}, "nobody knows what is in e"
