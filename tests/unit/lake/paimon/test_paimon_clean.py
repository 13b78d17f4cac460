# SPDX-License-Identifier: Apache-2.0
"""Clean tables, as Fluss makes them from 1.0 on: the user's columns alone. Rounds of ours and of the Flink job in turn,
and where each row came from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pypaimon.schema.schema_change import SchemaChange

from lakeward.errors import InvalidTable, LakeMismatch, LakeOverlap
from lakeward.hot.fluss.overlaps import check_counts, flink_snapshots
from lakeward.lake.paimon.meta.mapping import lake_schema
from lakeward.lake.paimon.plugin import load
from lakeward.lake.paimon.scan.placing import fill_gaps
from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward.model import FLUSS_PARTITIONS, Bucket, BucketFunction, OffsetRange, SystemClock, TableId
from lakeward.spi import LakeFile, LakeSnapshot
from lakeward.tiering.compact.ground import load_compaction
from lakeward.tiering.work.options import CompactionPolicy, TieringOptions
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, B1, LakeSuite, row
from lakeward_testing.paimonforeign import PaimonForeignEngine
from lakeward_testing.scripted_log import ScriptedLog
from tests.kit.paimonflink import PaimonFlinkJob

KEYED: dict[str, Any] = {"bucket_keys": ("id",), "bucket_function": BucketFunction.PAIMON}
PK: dict[str, Any] = {"primary_key": ("id",), **KEYED}
KIND = pa.field("_VALUE_KIND", pa.int8())


class World:
    """One clean table, made as Fluss makes it, with a log and both jobs."""

    def __init__(self, folder: Path, **options: Any) -> None:
        storage = load({"warehouse": str(folder / "warehouse")})
        assert isinstance(storage, PaimonLakeStorage)
        self.lake = storage
        self.table = LakeSuite().table_info(properties={FLUSS_PARTITIONS: "{}"}, table_id=TableId("7"), **options)
        with storage.connection.catalog("", "create") as catalog:
            catalog.create_database(self.table.path.database, True)
            catalog.create_table(str(self.table.path), lake_schema(self.table.descriptor, clean=True), False)
        self.log = ScriptedLog(self.table)
        self.flink = PaimonFlinkJob(storage.connection, self.table.path, "7", folder / "remote")

    def ours(self) -> LakeSnapshot:
        """A round of ours up to the log's ends."""
        made = LakeRound.plan(self.lake, self.log)
        for bucket in sorted(self.log.ends()):
            if self.log.end(bucket) > made.start(bucket):
                made.write(bucket, batches=2)
        return made.run() if not made.results else made.commit()

    def theirs(self) -> None:
        """A round of the Flink job up to the log's ends."""
        base = self.lake.open_reader(self.table).load_base().offsets
        ends = {b: self.log.end(b) for b in (B0, B1) if self.log.end(b)}
        parts = [(b.number, self.rows(b, base.get(b, self.start(b)))) for b in ends]
        self.flink.commit([(n, r) for n, r in parts if r.num_rows], [self.log.end(b) for b in (B0, B1)])

    def start(self, bucket: Bucket) -> int:
        return 0

    def rows(self, bucket: Bucket, start: int) -> pa.Table:
        found = pa.Table.from_batches([self.log.batch(bucket, start, self.log.end(bucket))])
        rows = found.select(list(self.table.schema.names))
        if not self.table.is_pk:
            return rows
        kinds = {0: 0, 1: 0, 2: 1, 3: 2, 4: 3}
        return rows.append_column(KIND, pa.array([kinds[k] for k in found["__change_type"].to_pylist()], pa.int8()))

    def files(self) -> list[LakeFile]:
        reader = self.lake.open_reader(self.table)
        head = reader.load_snapshot()
        assert head is not None
        return list(reader.files(head.snapshot_id))

    def ranges(self, bucket: Bucket = B0) -> list[OffsetRange]:
        return sorted(f.offsets for f in self.files() if f.bucket == bucket and f.offsets is not None)

    def names(self) -> dict[int, str]:
        reader = self.lake.open_reader(self.table)
        head = reader.load_snapshot()
        assert head is not None
        found = [r for b in reader.scan(head.snapshot_id, columns=["id", "name"]) for r in b.to_pylist()]
        assert len({r["id"] for r in found}) == len(found)
        return {r["id"]: r["name"] for r in found}

    def is_as_logged(self) -> bool:
        return lake_rows(self.lake, self.table) == self.log.expected(self.log.ends())


@pytest.mark.parametrize("keys", [KEYED, {"bucket_count": 1}], ids=["keyed", "one bucket"])
def test_rounds_of_both_in_turn_and_every_row_has_its_offset(tmp_path: Path, keys: dict[str, Any]) -> None:
    world, buckets = World(tmp_path, **keys), (B0, B1) if "bucket_keys" in keys else (B0,)
    number = 0
    for turn in (world.theirs, world.ours, world.ours, world.theirs, world.theirs, world.ours):
        for bucket in buckets:
            for _ in range(2 + bucket.number):
                world.log.append(bucket, row(number := number + 1))
        turn()
        assert world.is_as_logged()
    assert world.ranges()[:3] == [OffsetRange(0, 2), OffsetRange(2, 4), OffsetRange(4, 6)]
    reader = world.lake.open_reader(world.table)
    assert not reader.has_offsets
    head = reader.load_snapshot()
    assert head is not None
    tail = (pc.field("__bucket") == 0) & (pc.field("__offset") >= 10)  # as a stream from an offset asks
    found = reader.scan(head.snapshot_id, columns=["id", "__offset", "__timestamp"], filter=tail)
    rows = [r for b in found for r in b.to_pylist()]
    assert [r["__offset"] for r in rows] == [10, 11]
    assert {r["__timestamp"].timestamp() for r in rows} == {-0.001}
    assert [f.name for f in world.lake.connection.load(world.table.path).table_schema.fields] == [
        *world.table.schema.names
    ]


def test_files_of_the_flink_job_do_not_say_which_of_several_buckets_they_are_of(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.log.append(B0, row(1), row(2))
    world.log.append(B1, row(3))
    world.theirs()
    world.log.append(B0, row(4))
    world.ours()
    assert sorted(str(f.bucket) for f in world.files()) == [str(B0), "None", "None"]
    assert world.ranges() == [OffsetRange(2, 3)]
    reader = world.lake.open_reader(world.table)
    assert reader.load_base().offsets == world.log.ends()
    assert sorted(world.names()) == [1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["theirs first", "ours first"])
def test_sequence_numbers_of_a_pk_table_go_on_over_both(tmp_path: Path, kind: str) -> None:
    world = World(tmp_path, **PK)
    first, second = (world.theirs, world.ours) if kind == "theirs first" else (world.ours, world.theirs)
    assert world.lake.takes_one_writer(world.table)
    expected = dict[int, str]()
    for number in range(6):
        changed = dict.fromkeys(range(number, number + 4), f"wave {number}")
        world.log.upsert(B0, *(row(n, name) for n, name in changed.items()))
        world.log.delete(B0, row(number))
        expected = {n: v for n, v in {**expected, **changed}.items() if n != number}
        (first, second)[number % 2]()
        assert world.names() == expected
    if kind == "ours first":
        world.log.upsert(B0, row(100))
        world.ours()
        expected[100] = str(row(100)["name"])
    LakeRewrite(lake=world.lake, table=world.table).run()
    assert len(world.files()) == 1
    assert world.names() == expected
    world.log.upsert(B0, row(5, "after"))
    world.theirs()
    assert world.names() == expected | {5: "after"}


def test_a_log_that_began_late_is_counted_back(tmp_path: Path) -> None:
    world = World(tmp_path, **KEYED)
    world.log.skip(B0, 100)
    world.log.append(B0, row(1), row(2))
    world.flink.commit([(0, world.rows(B0, 100))], [102])
    assert world.is_as_logged()
    world.log.append(B0, row(3))
    world.ours()
    assert world.is_as_logged()


def test_rows_of_another_engine_have_no_offset(tmp_path: Path) -> None:
    """They do not fit between what is known: none of the files that say nothing is placed."""
    world = World(tmp_path, **KEYED)
    world.log.append(B0, row(1))
    world.ours()
    PaimonForeignEngine(world.lake.connection, world.table.path).insert(world.rows(B0, 0))
    reader = world.lake.open_reader(world.table)
    head = reader.load_snapshot()
    assert head is not None
    found = reader.scan(head.snapshot_id, columns=["__bucket", "__offset"])
    assert sorted(tuple(r.values()) for b in found for r in b.to_pylist()) == [(0, -1), (0, 0)]


def compact(world: World, **policy: Any) -> list[LakeFile]:
    """What the planner chooses, rewritten and committed: the files that are there then."""
    options = TieringOptions(compaction=CompactionPolicy(**policy), quiet_after_s=3600)
    ground = load_compaction(world.table, world.lake, options, SystemClock())
    assert ground.groups
    rewrite = LakeRewrite(lake=world.lake, table=world.table)
    rewrite.groups = list(ground.groups)
    rewrite.run()
    return world.files()


@pytest.mark.parametrize("keys", [KEYED, {"bucket_count": 1}], ids=["keyed", "one bucket"])
def test_a_compacted_log_table_is_counted_as_before(tmp_path: Path, keys: dict[str, Any]) -> None:
    world, number = World(tmp_path, **keys), 0
    for turn in (world.ours, world.theirs, world.ours, world.theirs, world.ours):
        world.log.append(B0, *(row(number := number + 1) for _ in range(3)))
        turn()
    assert [f.offsets for f in compact(world, fan_in=2)] == [OffsetRange(0, 15)]
    assert world.is_as_logged()
    for turn in (world.theirs, world.ours):
        world.log.append(B0, row(number := number + 1))
        turn()
        assert world.is_as_logged()
    assert world.ranges() == [OffsetRange(0, 15), OffsetRange(15, 16), OffsetRange(16, 17)]


def test_files_without_a_bucket_become_one_that_records_none(tmp_path: Path) -> None:
    """The Flink job's in a table of several buckets without a bucket key; rounds of both go on afterwards."""
    world, number = World(tmp_path), 0
    turns = (world.theirs, world.ours, world.theirs, world.theirs)
    for turn in turns:
        for bucket in (B0, B1, B1):
            world.log.append(bucket, row(number := number + 1))
        turn()
    before = sorted(str(f.bucket) for f in world.files())
    assert before == [str(B0), str(B1), *["None"] * 6]
    files = compact(world, fan_in=2)
    assert [(f.bucket, f.offsets, f.record_count) for f in files if f.bucket is None] == [(None, None, 9)]
    assert sorted(world.names()) == list(range(1, number + 1))
    for turn in (world.theirs, world.ours):
        world.log.append(B0, row(number := number + 1))
        turn()
        assert sorted(world.names()) == list(range(1, number + 1))
    assert world.lake.open_reader(world.table).load_base().offsets == world.log.ends()


def test_a_vector_of_another_engine_leaves_a_hole(tmp_path: Path) -> None:
    world = World(tmp_path, **KEYED)
    world.log.append(B0, *(row(n) for n in range(4)))
    world.ours()
    world.log.append(B0, *(row(n) for n in range(4, 6)))
    world.ours()
    engine = PaimonForeignEngine(world.lake.connection, world.table.path)
    first = next(f.path for f in world.files() if f.offsets == OffsetRange(0, 4))
    engine.delete_by_vector({first.rpartition("/")[2]: [0, 2]})
    engine.alter(SchemaChange.remove_option("deletion-vectors.enabled"))
    kept = [(b, o, r) for b, o, r in world.log.expected(world.log.ends()) if o not in (0, 2)]
    assert lake_rows(world.lake, world.table) == kept
    LakeRewrite(lake=world.lake, table=world.table).run()
    (file,) = world.files()
    assert (file.record_count, file.offsets) == (4, OffsetRange(0, 6))
    assert sorted(world.names()) == [1, 3, 4, 5]


@pytest.mark.parametrize(("stop", "is_late"), [(4, False), (3, True), (1, True)])
@pytest.mark.parametrize("keys", [KEYED, {}], ids=["keyed", "no key"])
def test_more_rows_than_offsets_are_an_overlap(tmp_path: Path, keys: dict[str, Any], stop: int, is_late: bool) -> None:
    """Two rows that a late job adds: its offsets may have moved on by less, or back."""
    world = World(tmp_path, **keys)
    world.log.append(B0, row(1), row(2))
    world.ours()
    world.log.append(B0, row(3), row(4))
    world.flink.commit([(0, world.rows(B0, 2))], [stop])
    reader = world.lake.open_reader(world.table)
    head, snapshots = reader.load_snapshot(), reader.snapshots()
    assert head is not None
    ours, above = flink_snapshots(snapshots, head.snapshot_id)
    assert ours is not None
    if not is_late:
        check_counts("t", reader.files, ours, above, head, is_pk=False)
        return
    with pytest.raises(LakeOverlap, match=f"snapshot {ours.snapshot_id}"):
        check_counts("t", reader.files, ours, above, head, is_pk=False)


def test_a_column_is_added_at_the_end(tmp_path: Path) -> None:
    world = World(tmp_path, **PK)
    world.log.upsert(B0, row(1))
    world.ours()
    wider = LakeSuite().table_info(
        properties={FLUSS_PARTITIONS: "{}"},
        table_id=TableId("7"),
        columns={c.name: str(c.type) for c in world.table.schema.columns} | {"more": "INT"},
        **PK,
    )
    world.lake.catalog().add_columns(world.table, wider.schema.columns[-1:])
    world.lake.catalog().validate(wider)
    with pytest.raises(LakeMismatch, match="more"):
        world.lake.catalog().validate(world.table)


def test_some_of_the_system_columns_are_neither_layout(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.lake.check_shared(world.table)
    engine = PaimonForeignEngine(world.lake.connection, world.table.path)
    engine.alter(SchemaChange.add_column("__bucket", lake_schema(world.table.descriptor).fields[-3].type))
    with pytest.raises(InvalidTable, match=r"no __offset, __timestamp.*all of them, or none"):
        world.lake.check_shared(world.table)


RANGE = OffsetRange


@pytest.mark.parametrize(
    ("known", "counts", "end", "filled"),
    [
        ([], [2, 3], 5, [RANGE(0, 2), RANGE(2, 5)]),
        ([], [2, 3], 105, [RANGE(100, 102), RANGE(102, 105)]),
        ([], [2, 3], 4, None),
        ([], [2, 3], None, [RANGE(0, 2), RANGE(2, 5)]),
        ([RANGE(2, 4)], [2, 1], 5, [RANGE(0, 2), RANGE(4, 5)]),
        ([RANGE(2, 4)], [2, 1], None, [RANGE(0, 2), RANGE(4, 5)]),
        ([RANGE(2, 4), RANGE(6, 9)], [1, 1, 2], 9, [RANGE(0, 1), RANGE(1, 2), RANGE(4, 6)]),
        ([RANGE(2, 4), RANGE(6, 9)], [1, 2, 1], 9, None),
        ([RANGE(2, 4)], [1], 9, None),
        ([RANGE(2, 4)], [2], 3, None),
        ([RANGE(2, 4), RANGE(3, 6)], [2], 6, None),
        ([RANGE(100, 102)], [5], 102, [RANGE(95, 100)]),
        ([RANGE(0, 102)], [5], 102, None),
    ],
)
def test_files_fill_the_gaps_exactly_or_not_at_all(
    known: list[OffsetRange], counts: list[int], end: int | None, filled: list[OffsetRange] | None
) -> None:
    assert fill_gaps(known, counts, end) == filled
