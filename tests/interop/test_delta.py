# SPDX-License-Identifier: Apache-2.0
"""Delta tables as others read them: delta-rs and DuckDB, with deletion vectors, partitions, checkpoints, the past."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from lakeward.lake.delta.plugin import DeltaLakeStorage, open_lake
from lakeward.model import Bucket, Column, ColumnChanges, SnapshotId, change_columns, parse_type
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.suite import B0, B1, COLUMNS, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog

Rows = list[tuple[Any, ...]]
Reader = Callable[[str, int | None, str], Rows]


def delta_rs(root: str, version: int | None, query: str) -> Rows:
    table = DeltaTable(root, version=version)
    found = pa.table(QueryBuilder().register("t", table).execute(query))
    return [tuple(r.values()) for r in found.to_pylist()]


def duck(root: str, version: int | None, query: str) -> Rows:
    folder = Path(str(importlib.import_module("duckdb_extension_delta").__file__)).parent
    (file,) = folder.glob("extensions/*/*.duckdb_extension")
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        connection.execute(f"LOAD '{file}'; SET TimeZone = 'UTC'")
        of = "" if version is None else f", version => {version}"
        connection.execute(f"CREATE VIEW t AS SELECT * FROM delta_scan('{root}'{of})")
        return [tuple(r.values()) for r in connection.sql(query).to_arrow_table().to_pylist()]


READERS = pytest.mark.parametrize("reader", [delta_rs, duck])


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLakeStorage:
    return open_lake({"warehouse": str(tmp_path)})


def root_of(lake: DeltaLakeStorage, log: ScriptedLog) -> str:
    return str(lake.log(log.table.path).root)


def changed(lake: DeltaLakeStorage, rounds: int) -> ScriptedLog:
    log, chance = LakeSuite().make_log(lake, primary_key=("id",)), Random(8)
    for _ in range(rounds):
        for _ in range(12):
            bucket, number = chance.choice((B0, B1)), chance.randrange(8)
            if chance.random() < 0.3:
                log.delete(bucket, row(number))
            else:
                log.upsert(bucket, row(number, f"change {chance.randrange(1000)}"))
        LakeRound.plan(lake, log).run()
    return log


def wanted(rows: list[tuple[Bucket, int, dict[str, Any]]], *names: str) -> Rows:
    return [(b.number, offset, *(r[n] for n in names)) for b, offset, r in rows]


QUERY = "SELECT __bucket, __offset, id, name, amount FROM t ORDER BY 1, 2"


@READERS
def test_upserts_are_read_over_a_checkpoint_and_a_rewrite(lake: DeltaLakeStorage, reader: Reader) -> None:
    log = changed(lake, 12)
    root = root_of(lake, log)
    expected = wanted(log.expected(log.ends()), "id", "name", "amount")
    assert list(Path(root, "_delta_log").glob("*.checkpoint.parquet"))
    assert any(f.deletes for f in lake.open_reader(log.table).files(SnapshotId("12")))
    assert reader(root, None, QUERY) == expected
    for version in (4, 9):
        then = lake_rows(lake, log.table, SnapshotId(str(version)))
        assert reader(root, version, QUERY) == wanted(then, "id", "name", "amount")
    LakeRewrite(lake=lake, table=log.table).run()
    assert reader(root, None, QUERY) == expected


@READERS
def test_partitions_types_and_an_added_column_are_read(lake: DeltaLakeStorage, reader: Reader) -> None:
    columns = {**COLUMNS, "moment": "TIMESTAMP(3)", "instant": "TIMESTAMP_LTZ(6)", "day": "DATE NOT NULL"}
    log = LakeSuite().make_log(lake, columns=columns, partition_keys=("day",))
    moment, instant = datetime(2024, 2, 29, 1, 2, 3, 4000), datetime(1969, 1, 1, tzinfo=UTC)
    first, second = (Bucket(str(date(2024, 2, d)), 1) for d in (28, 29))
    log.append(first, row(1, moment=moment, instant=instant, day=date(2024, 2, 28)))
    LakeRound.plan(lake, log).run()
    added = Column(name="more", type=parse_type("ARRAY<INT>"))
    lake.catalog().add_columns(log.table, [added])
    descriptor = log.table.descriptor
    log.table = log.table.with_descriptor(
        type(descriptor)(schema=descriptor.schema.with_added([added]), bucket_count=2, partition_keys=("day",))
    )
    log.append(second, row(2, moment=None, instant=instant, day=date(2024, 2, 29), more=[1, None]))
    LakeRound.plan(lake, log).run()
    found = reader(root_of(lake, log), None, "SELECT id, amount, moment, instant, day, more FROM t ORDER BY id")
    assert found == [
        (1, Decimal("0.25"), moment, instant, date(2024, 2, 28), None),
        (2, Decimal("0.50"), None, instant, date(2024, 2, 29), [1, None]),
    ]
    few = reader(root_of(lake, log), None, "SELECT id FROM t WHERE day = DATE '2024-02-29' AND id > 1")
    assert few == [(2,)]


def changed_columns(lake: DeltaLakeStorage, *, widen: bool) -> tuple[ScriptedLog, Rows]:
    """A table with rows before and after its columns changed, and what its readers must see: names are swapped, one
    column goes and comes back as another, one is between."""
    log = LakeSuite().make_log(
        lake, columns={**COLUMNS, "n": "INT", "note": "STRING", "d": "DATE"}, primary_key=("id",)
    )
    log.upsert(B0, row(1, n=5, note="old", d=date(1, 1, 1)), row(2, n=6, note="old"))
    LakeRound.plan(lake, log).run()
    changes = ColumnChanges(
        rename={"name": "title", "id": "key"},
        drop=("note",),
        add=(Column(name="note", type=parse_type("BIGINT")), Column(name="name", type=parse_type("STRING"))),
        widen={"n": parse_type("BIGINT"), "d": parse_type("TIMESTAMP(6)")} if widen else {},
        after={"note": "key"},
    )
    after = change_columns(log.table, changes)
    lake.catalog().check_evolve(log.table, after)
    lake.catalog().evolve(log.table, after)
    lake.catalog().evolve(log.table, after)
    big = 2**40 if widen else 7
    old, late = (datetime(1, 1, 1), datetime(9999, 12, 31, 1)) if widen else (date(1, 1, 1), date(9999, 12, 31))
    changed = ScriptedLog(after)
    changed.skip(B1, log.end(B1) + 10)
    changed.upsert(B1, {"key": 3, "title": "new", "amount": Decimal(1), "n": big, "note": 1, "name": "x", "d": late})
    changed._ends[B0] = log.end(B0)
    LakeRound.plan(lake, changed).run()
    wanted = [(1, None, "row 1", 5, None, old), (2, None, "row 2", 6, None, None), (3, 1, "new", big, "x", late)]
    return changed, wanted


CHANGED = "SELECT key, note, title, n, name, d FROM t ORDER BY 1"


@READERS
def test_renamed_dropped_and_added_columns_are_read_by_their_ids(lake: DeltaLakeStorage, reader: Reader) -> None:
    log, wanted = changed_columns(lake, widen=False)
    assert reader(root_of(lake, log), None, CHANGED) == wanted
    LakeRewrite(lake=lake, table=log.table).run()
    assert reader(root_of(lake, log), None, CHANGED) == wanted
    assert reader(root_of(lake, log), None, "SELECT title FROM t WHERE key = 3 AND note = 1") == [("new",)]


def test_a_wider_column_is_read_by_duckdb_and_refused_by_delta_rs(lake: DeltaLakeStorage) -> None:
    """Never wrong values: a reader that does not know type widening says so."""
    log, wanted = changed_columns(lake, widen=True)
    assert duck(root_of(lake, log), None, CHANGED) == wanted
    with pytest.raises(Exception, match="TypeWidening"):
        delta_rs(root_of(lake, log), None, CHANGED)


def test_readers_that_do_not_know_column_mapping_refuse_the_table(lake: DeltaLakeStorage) -> None:
    log, _ = changed_columns(lake, widen=False)
    with pytest.raises(Exception, match="columnMapping"):
        DeltaTable(root_of(lake, log)).to_pyarrow_table()


def test_a_log_table_asks_nothing_new_of_its_readers(lake: DeltaLakeStorage) -> None:
    log = LakeSuite().make_log(lake)
    log.append(B0, row(1), row(2))
    LakeRound.plan(lake, log).run()
    table = DeltaTable(root_of(lake, log))
    assert sorted(table.to_pyarrow_table().column("id").to_pylist()) == [1, 2]
    assert table.transaction_version("lakeward") == table.version()
