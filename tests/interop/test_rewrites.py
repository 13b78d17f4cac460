# SPDX-License-Identifier: Apache-2.0
"""Other engines read what a rewrite made: deletes that were carried over, keys that came later."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.testing.iceberg.engines import read_datafusion, read_duckdb, read_pyiceberg
from lakeward.testing.lakes import LakeRound
from lakeward.testing.lakes.rewriting import LakeRewrite
from lakeward.testing.lakes.suite import B0, LakeSuite, row
from lakeward.testing.lakes.upserts import change_randomly
from lakeward.testing.scripted_log import ScriptedLog

Engine = Callable[[str], pa.Table]


def ids_and_names(table: pa.Table) -> list[tuple[int, str]]:
    return sorted((r["id"], r["name"]) for r in table.select(["id", "name"]).to_pylist())


def expected(log: ScriptedLog) -> list[tuple[int, str]]:
    return sorted((r["id"], r["name"]) for _, _, r in log.expected(log.ends()))


@pytest.fixture(params=["2", "3"])
def log(request: pytest.FixtureRequest, lake: IcebergLakeStorage) -> ScriptedLog:
    """Rewritten while a round went on, in a table of either version."""
    properties, chance = {"iceberg.format-version": request.param}, random.Random(7)
    log = LakeSuite().make_log(lake, primary_key=("id",), properties=properties)
    for _ in range(4):
        change_randomly(log, chance, 25)
        LakeRound.plan(lake, log).run()
    made = LakeRewrite(lake=lake, table=log.table).write()
    change_randomly(log, chance, 25)
    LakeRound.plan(lake, log).run()
    prepared = made.prepare()
    assert prepared.carried > 0
    made.commit(prepared)
    return log


@pytest.mark.parametrize("engine", [read_duckdb, read_pyiceberg, read_datafusion])
def test_deletes_that_were_carried_over(lake: IcebergLakeStorage, log: ScriptedLog, engine: Engine) -> None:
    location = lake.connection.load(log.table.path).metadata_location
    assert ids_and_names(engine(location)) == expected(log)


def test_keys_that_came_after_the_plan(lake: IcebergLakeStorage) -> None:
    """DuckDB looks at sequence numbers: the new file has that of the plan."""
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
