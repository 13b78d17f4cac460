# SPDX-License-Identifier: Apache-2.0
"""Tables of format version 3 as other engines see them: one deletion vector for each data file, row ids that stay."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

from lakeward.errors import InvalidAlter, InvalidTable
from lakeward.lake.iceberg.meta.manifests import load_entries, load_manifests
from lakeward.lake.iceberg.meta.version import find_next_row_id
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.spi import LakeFile, load_lake
from lakeward_testing.lakes import LakeRound
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.lakes.upserts import change_randomly
from lakeward_testing.scripted_log import ScriptedLog
from tests.kit.iceberg.engines import (
    duckdb_connection,
    read_datafusion,
    read_duckdb,
    read_duckdb_rest,
    read_pyiceberg,
)
from tests.kit.iceberg.merge_on_read import MergeOnReadEngine

from .conftest import Served

VERSION = "iceberg.format-version"
ENGINES: tuple[Callable[[str], pa.Table], ...] = (read_duckdb, read_pyiceberg, read_datafusion)
Lineage = dict[tuple[int, int], tuple[int, int]]


def make_log(lake: IcebergLakeStorage, version: int = 3) -> ScriptedLog:
    return LakeSuite().make_log(lake, primary_key=("id",), properties={VERSION: str(version)})


def run(lake: IcebergLakeStorage, log: ScriptedLog) -> None:
    LakeRound.plan(lake, log).run()


def location(lake: IcebergLakeStorage, log: ScriptedLog) -> str:
    return lake.connection.load(log.table.path).metadata_location


def files(lake: IcebergLakeStorage, log: ScriptedLog) -> list[LakeFile]:
    reader = lake.open_reader(log.table)
    head = reader.load_base().head
    assert head is not None
    return list(reader.files(head))


def names(table: pa.Table) -> list[tuple[int, str]]:
    return sorted((r["id"], r["name"]) for r in table.select(["id", "name"]).to_pylist())


def check(lake: IcebergLakeStorage, log: ScriptedLog, *, without: tuple[int, ...] = ()) -> None:
    """Engines agree with the log, and no data file has more than one vector, nor a vector beside positions."""
    expected = sorted((r["id"], r["name"]) for _, _, r in log.expected(log.ends()) if r["id"] not in without)
    for engine in ENGINES:
        assert names(engine(location(lake, log))) == expected, engine.__name__
    for file in files(lake, log):
        kinds = Counter(d.content for d in file.deletes)
        assert kinds["vector"] <= 1
        assert not (kinds["vector"] and kinds["positions"])


def live_deletes(lake: IcebergLakeStorage, log: ScriptedLog) -> int:
    """Entries of delete manifests, needed or not."""
    table = lake.connection.load(log.table.path)
    manifests = load_manifests(table.io, table.metadata.current_snapshot())
    return sum(len(load_entries(table.io, m)) for m in manifests if m.content == 1)


def lineage(lake: IcebergLakeStorage, log: ScriptedLog) -> Lineage:
    """Bucket and key -> row id and the sequence number of its last change, as DuckDB works them out."""
    with duckdb_connection() as connection:
        columns = "__bucket, id, _row_id, _last_updated_sequence_number"
        found = connection.sql(f"SELECT {columns} FROM iceberg_scan('{location(lake, log)}')").fetchall()
    assert len({r[2] for r in found}) == len(found), "row ids are unique"
    next_row_id = find_next_row_id(lake.connection.load(log.table.path).metadata)
    assert next_row_id is not None
    assert all(0 <= r[2] < next_row_id for r in found)
    return {r[:2]: r[2:] for r in found}


def test_vectors_are_merged_over_rounds(lake: IcebergLakeStorage) -> None:
    """Ten rounds: manifests are merged on the way, which may lose neither a vector nor a row id."""
    log, chance = make_log(lake), random.Random(5)
    log.upsert(B0, row(1_000))
    for _ in range(10):
        change_randomly(log, chance, 15)
        run(lake, log)
        check(lake, log)
        assert lineage(lake, log)[0, 1_000] == (0, 1)
    deleting = [f for f in files(lake, log) if f.deletes]
    assert max(f.deletes[0].record_count for f in deleting) > 2
    assert {d.content for f in deleting for d in f.deletes} == {"vector"}
    assert live_deletes(lake, log) == len(deleting)


def test_a_vector_of_another_engine_is_merged(lake: IcebergLakeStorage) -> None:
    log = make_log(lake)
    log.upsert(B0, *map(row, range(6)))
    run(lake, log)
    (file,) = files(lake, log)
    MergeOnReadEngine(lake.connection.catalog, log.table.path).delete_rows({file.path: [1, 4]})
    log.upsert(B0, row(2, "new"))
    log.delete(B0, row(3))
    run(lake, log)
    check(lake, log, without=(1, 4))
    (merged,) = [f for f in files(lake, log) if f.path == file.path]
    assert [(d.content, d.record_count) for d in merged.deletes] == [("vector", 4)]
    assert live_deletes(lake, log) == 1


def test_a_vector_in_a_table_of_version_2_hides_no_later_delete(lake: IcebergLakeStorage) -> None:
    """Engines look at no delete file beside a vector, or refuse the table. One that no delete of ours meets stays."""
    log = make_log(lake, version=2)
    for first in (0, 6):
        log.upsert(B0, *map(row, range(first, first + 6)))
        run(lake, log)
    there = MergeOnReadEngine(lake.connection.catalog, log.table.path)
    there.delete_rows({f.path: [1, 4] for f in files(lake, log)})
    for kinds, number in ((["positions", "vector"], 2), (["positions", "positions"], 8)):
        log.upsert(B0, row(number, "new"))
        log.delete(B0, row(number + 1))
        run(lake, log)
        assert sorted(d.content for f in files(lake, log) for d in f.deletes) == kinds
    check(lake, log, without=(1, 4, 7, 10))


@pytest.mark.parametrize("version", [2, 3])
def test_a_row_that_another_engine_deleted_is_not_deleted_twice(lake: IcebergLakeStorage, version: int) -> None:
    log = make_log(lake, version)
    log.upsert(B0, *map(row, range(6)))
    run(lake, log)
    (file,) = files(lake, log)
    MergeOnReadEngine(lake.connection.catalog, log.table.path).delete_rows({file.path: [1, 4]})
    log.upsert(B0, row(1, "again"), row(2, "new"))
    late = LakeRound.plan(lake, log).write(B0)
    committable = late.prepare()
    assert committable.deletes == 1
    snapshot = late.commit(committable)
    assert snapshot.totals is not None
    assert snapshot.totals.rows == 5
    check(lake, log, without=(4,))


def test_a_table_moves_to_version_3(lake: IcebergLakeStorage) -> None:
    """Delete files from before are read, then merged, and leave when every file they name has a vector."""
    log = make_log(lake, version=2)
    for start in (0, 5):
        log.upsert(B0, *map(row, range(start, start + 5)))
        run(lake, log)
    log.delete(B0, row(0), row(5))
    run(lake, log)
    catalog = lake.catalog()
    catalog.set_properties(log.table, {VERSION: "3"})
    catalog.set_properties(log.table, {VERSION: "3"})
    assert lake.connection.load(log.table.path).metadata.format_version == 3
    check(lake, log)
    log.delete(B0, row(1))
    run(lake, log)
    check(lake, log)
    assert sorted(d.content for f in files(lake, log) for d in f.deletes) == ["positions", "vector"]
    before = lineage(lake, log)
    log.delete(B0, row(6))
    run(lake, log)
    check(lake, log)
    assert [(d.content, d.record_count) for f in files(lake, log) for d in f.deletes] == [("vector", 2)] * 2
    assert live_deletes(lake, log) == 2
    assert lineage(lake, log) == {k: v for k, v in before.items() if k != (0, 6)}


@pytest.mark.parametrize("version", ["2", "4", "x", None])
def test_no_other_version(lake: IcebergLakeStorage, version: str | None) -> None:
    log = make_log(lake)
    with pytest.raises(InvalidAlter, match="goes back" if version in ("2", None) else "versions 2 and 3"):
        lake.catalog().set_properties(log.table, {VERSION: version})


def test_a_new_table_of_version_4_is_refused(lake: IcebergLakeStorage) -> None:
    with pytest.raises(InvalidTable, match=r"format-version '4': versions 2 and 3"):
        make_log(lake, version=4)


def test_rows_keep_their_ids_through_rewrites(lake: IcebergLakeStorage) -> None:
    """Deletes that came after the plan are carried over; a rewrite of a rewritten file keeps ids as well."""
    log, chance = make_log(lake), random.Random(7)
    for _ in range(4):
        change_randomly(log, chance, 25)
        run(lake, log)
    made = LakeRewrite(lake=lake, table=log.table).write()
    change_randomly(log, chance, 25)
    run(lake, log)
    before = lineage(lake, log)
    prepared = made.prepare()
    assert prepared.carried > 0
    made.commit(prepared)
    check(lake, log)
    assert lineage(lake, log) == before
    LakeRewrite(lake=lake, table=log.table).run()
    check(lake, log)
    assert live_deletes(lake, log) == 0
    assert lineage(lake, log) == before


def test_a_rewrite_planned_before_rows_had_ids_is_left_out(lake: IcebergLakeStorage) -> None:
    log = make_log(lake, version=2)
    log.upsert(B0, row(0), row(1))
    run(lake, log)
    lake.catalog().set_properties(log.table, {VERSION: "3"})
    made = LakeRewrite(lake=lake, table=log.table).write()
    log.upsert(B0, row(2))
    run(lake, log)
    prepared = made.prepare()
    assert (prepared.committable, prepared.left_out) == (None, (0,))


def test_through_the_rest_catalog(served: Served) -> None:
    lake = load_lake("iceberg", {"type": "rest", "uri": served.url})
    assert isinstance(lake, IcebergLakeStorage)
    for name, version in (("made", 3), ("moved", 2)):
        log = LakeSuite().make_log(lake, name, primary_key=("id",), properties={VERSION: str(version)})
        log.upsert(B0, row(0), row(1))
        run(lake, log)
        lake.catalog().set_properties(log.table, {VERSION: "3"})
        log.delete(B0, row(1))
        run(lake, log)
        assert names(read_duckdb_rest(served.url, f"contract.{name}")) == [(0, "row 0")]
        check(lake, log)
    lake.connection.close()
