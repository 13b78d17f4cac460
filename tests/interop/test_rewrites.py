# SPDX-License-Identifier: Apache-2.0
"""Other engines read what a rewrite made: deletes that were carried over, keys that came later."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward_testing.lakes import LakeRound
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.lakes.upserts import change_randomly
from lakeward_testing.scripted_log import ScriptedLog
from tests.kit.iceberg.engines import read_datafusion, read_duckdb, read_pyiceberg
from tests.kit.iceberg.folder import folder_lake

Engine = Callable[[str], pa.Table]


def ids_and_names(table: pa.Table) -> list[tuple[int, str]]:
    return sorted((r["id"], r["name"]) for r in table.select(["id", "name"]).to_pylist())


def expected(log: ScriptedLog) -> list[tuple[int, str]]:
    return sorted((r["id"], r["name"]) for _, _, r in log.expected(log.ends()))


ENGINES: tuple[Engine, ...] = (read_duckdb, read_pyiceberg, read_datafusion)


def check(lake: IcebergLakeStorage, log: ScriptedLog) -> None:
    location = lake.connection.load(log.table.path).metadata_location
    for engine in ENGINES:
        assert ids_and_names(engine(location)) == expected(log), engine.__name__


def run(lake: IcebergLakeStorage, log: ScriptedLog) -> None:
    LakeRound.plan(lake, log).run()


@pytest.mark.parametrize("version", ["2", "3"])
def test_before_and_after_with_deletes_that_were_carried_over(lake: IcebergLakeStorage, version: str) -> None:
    log = LakeSuite().make_log(lake, primary_key=("id",), properties={"iceberg.format-version": version})
    chance = random.Random(7)
    for _ in range(4):
        change_randomly(log, chance, 25)
        run(lake, log)
    rewrite = LakeRewrite(lake=lake, table=log.table).write()
    change_randomly(log, chance, 25)
    run(lake, log)
    check(lake, log)
    prepared = rewrite.prepare()
    assert prepared.carried > 0
    rewrite.commit(prepared)
    check(lake, log)
    change_randomly(log, chance, 25)
    run(lake, log)
    check(lake, log)


def test_delete_files_on_what_stays_become_one(lake: IcebergLakeStorage) -> None:
    """Every round leaves one, and readers of the first file would open them all."""
    log = LakeSuite().make_log(lake, primary_key=("id",))
    log.upsert(B0, *map(row, range(20)))
    run(lake, log)
    for number in range(6):
        log.upsert(B0, row(number, "changed"), row(number + 10, "changed"))
        run(lake, log)
    rewrite = LakeRewrite(lake=lake, table=log.table)
    (group,) = rewrite.groups
    first, *others = sorted(group.files, key=lambda f: f.sequence)
    assert len(first.deletes) == 6
    rewrite.groups = [replace(group, files=tuple(others[:3]))]
    log.delete(B0, row(0), row(19))  # on a file that is rewritten, and on one that stays
    rewrite.write()
    run(lake, log)
    rewritten = rewrite.commit()
    (first,) = (f for f in rewrite.reader.files(rewritten.snapshot_id, B0) if f.path == first.path)
    assert [d.record_count for d in first.deletes] == [14], "twelve replaced, one deleted, one of the new file"
    assert rewritten.totals is not None
    assert (rewritten.totals.delete_files, rewritten.totals.rows) == (1, 18)
    check(lake, log)
    log.upsert(B0, *(row(n, "again") for n in (1, 2, 15)))
    run(lake, log)
    check(lake, log)


def test_keys_that_came_after_the_plan(tmp_path: Path) -> None:
    """DuckDB looks at sequence numbers: the new file has that of the plan."""
    with folder_lake(tmp_path, deletes="equality") as lake:
        log = LakeSuite().make_log(lake, primary_key=("id",))
        for number in range(3):
            log.upsert(B0, row(number), row(number + 1))
            LakeRound.plan(lake, log).run()
        made, start = LakeRewrite(lake=lake, table=log.table).write(), log.end(B0)
        log.delete(B0, row(2))
        late = LakeRound.plan(lake, log)
        writer = lake.open_writer(late.task(B0, start, log.end(B0)))
        writer.delete_keys(pa.record_batch({"id": pa.array([2], pa.int64())}))
        late.take(B0, log.end(B0), writer.complete())
        late.commit()
        made.commit()
        location = lake.connection.load(log.table.path).metadata_location
        assert ids_and_names(read_duckdb(location)) == expected(log) == [(i, f"row {i}") for i in (0, 1, 3)]
