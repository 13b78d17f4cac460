# SPDX-License-Identifier: Apache-2.0
"""Where streams take their rows from: the log, the lake in offset order, a pinned snapshot; and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from lakeward.client.rows import fit_rows
from lakeward.errors import InvalidRequest, OffsetOutOfRange, SnapshotGone
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import BUCKET, Bucket, Content, OffsetRange, SideName, TablePath
from lakeward.read.spark.options import SourceOptions, parse_options
from lakeward.read.spark.stream import UnionStreamReader, check_stream, start_offsets
from lakeward.read.streamrows import StreamRows, short_names
from lakeward_testing.clock import ManualClock
from lakeward_testing.icebergforeign import IcebergForeignEngine
from tests.kit.inprocess import InProcessLakeward
from tests.unit.read.test_union import OFF, cut_log

PATH, B0 = TablePath.parse("db.t"), Bucket("", 0)
CHANGELOG: dict[str, Any] = {"table.datalake.changelog": "default"}


class InProcessReader(UnionStreamReader):
    """As Spark has it, over parts of this process."""

    def __init__(self, world: InProcessLakeward, *columns: str) -> None:
        super().__init__(SourceOptions(table=PATH, hot_name="none", hot_options={}), columns)
        self.world = world

    def _rows(self) -> StreamRows:
        return rows_of(self.world)

    def batch(self, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
        return [row for part in self.partitions(start, end) for b in self.read(part) for row in b.to_pylist()]


def rows_of(world: InProcessLakeward) -> StreamRows:
    table = world.store.load_table(PATH)
    is_on = table.descriptor.properties.get("table.datalake.enabled") != "false"
    return StreamRows(world.plugin, table, world.lake.open_reader(table) if is_on else None)


def engine(world: InProcessLakeward) -> IcebergForeignEngine:
    assert isinstance(world.lake, IcebergLakeStorage)
    return IcebergForeignEngine(world.lake.connection.catalog, PATH)


def rewrite_without_buckets(world: InProcessLakeward) -> None:
    """Another engine takes the bucket out of the spec and rewrites all: no file says its bucket any more."""
    table = engine(world).load()
    names = [f.name for f in table.spec().fields]
    with table.update_spec() as change:
        for name in names:
            change.remove_field(name)
    engine(world).rewrite()


def test_a_pk_stream_does_not_begin_in_the_middle_of_a_changelog(world: InProcessLakeward, clock: ManualClock) -> None:
    world.create("db.t", "id bigint not null, v string", primary_key="id", buckets=1, **OFF)
    for i in range(200):
        world.upsert("db.t", [{"id": i % 20, "v": "x" * 50}])
    assert cut_log(world, clock, "db.t") > 0
    with pytest.raises(OffsetOutOfRange, match="offset 0 is outside"):
        InProcessReader(world, "id", "__change_type").initialOffset()


def test_history_of_files_that_do_not_say_their_bucket(world: InProcessLakeward, clock: ManualClock) -> None:
    table = world.create("db.t", "id bigint not null, v string", buckets=2)
    for i in range(200):
        row = fit_rows([{"id": i, "v": "x" * 50}], table, table.schema.names)
        world.store.append(table, Bucket("", i % 2), row.to_batches()[0])
    world.tier("db.t")
    rewrite_without_buckets(world)
    assert cut_log(world, clock, "db.t") > 0
    rows = rows_of(world)
    seen: list[int] = []
    for number in range(2):
        bucket = Bucket("", number)
        end = rows.bounds()[bucket].end
        found = [r for b in rows.range(bucket, OffsetRange(0, end), ["id"]) for r in b.to_pylist()]
        assert [r["__offset"] for r in found] == list(range(end)), "in order, without a gap"
        assert {r[BUCKET] for r in found} == {number}
        seen += [r["id"] for r in found]
    assert sorted(seen) == list(range(200))


@pytest.mark.parametrize("is_rewritten", [False, True])
def test_a_pinned_snapshot_is_given_whole_then_the_changes(world: InProcessLakeward, is_rewritten: bool) -> None:
    world.create("db.t", "id bigint not null, v string", primary_key="id", buckets=2)
    world.upsert("db.t", [{"id": i, "v": "old"} for i in range(20)])
    world.tier("db.t")
    if is_rewritten:
        rewrite_without_buckets(world)
    world.upsert("db.t", [{"id": 3, "v": "new"}])
    reader = InProcessReader(world, "id", "v", "__change_type")
    first = reader.initialOffset()
    pinned = reader.latestOffset(first)
    assert sorted((r["id"], r["v"]) for r in reader.batch(first, pinned)) == [(i, "old") for i in range(20)]
    changes = reader.batch(pinned, reader.latestOffset(pinned))
    assert [(r["__change_type"], r["v"]) for r in changes] == [("-U", "old"), ("+U", "new")]


def test_a_first_batch_that_is_run_again_is_the_same_or_its_snapshot_is_named_as_gone(world: InProcessLakeward) -> None:
    world.create("db.t", "id bigint not null, v string", primary_key="id", buckets=2)
    world.upsert("db.t", [{"id": i, "v": "old"} for i in range(20)])
    world.tier("db.t")
    reader = InProcessReader(world, "id", "v", "__change_type")
    pinned = reader.latestOffset(reader.initialOffset())
    world.upsert("db.t", [{"id": 3, "v": "new"}])
    world.tier("db.t")
    again = reader.initialOffset()
    assert again["snapshot"] != pinned["snapshot"]
    assert {r["v"] for r in reader.batch(again, pinned)} == {"old"}
    engine(world).expire()
    with pytest.raises(SnapshotGone):
        reader.batch(again, pinned)


def test_a_pk_stream_begins_anywhere_that_the_changelog_covers(world: InProcessLakeward, clock: ManualClock) -> None:
    world.create("db.t", "id bigint not null, v string", primary_key="id", **CHANGELOG)
    for i in range(200):
        world.upsert("db.t", [{"id": i, "v": "x" * 50}])
    world.tier("db.t")
    world.tier("db.t", SideName("default", Content.CHANGELOG))
    assert cut_log(world, clock, "db.t") > 17
    rows = StreamRows.open(world.plugin, PATH, world.open_side)
    begin = start_offsets(rows, parse_options({"table": "db.t", "startingOffsets": '{"0": 17}'}).starting)
    found = list(rows.range(B0, OffsetRange(begin[B0], 200), ["id"]))
    assert [i for b in found for i in b.column("id").to_pylist()] == list(range(17, 200))
    assert [name for b in found for name in short_names(b).to_pylist()] == ["+I"] * 183
    with pytest.raises(InvalidRequest, match="they say one thing"):
        parse_options({"table": "db.t", "starting": "latest", "startingTimestamp": "2026-11-01"})


def test_a_cut_is_an_option_of_batch_reads_alone(world: InProcessLakeward) -> None:
    assert parse_options({"table": "db.t", "cut": "month-end"}).cut == "month-end"
    table = world.create("db.t", "id bigint")
    with pytest.raises(InvalidRequest, match="option cut: a stream has no end to bind"):
        check_stream(parse_options({"table": "db.t", "cut": "month-end"}), table, table.schema.names)
