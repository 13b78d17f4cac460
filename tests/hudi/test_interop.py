# SPDX-License-Identifier: Apache-2.0
"""Hudi 1.2 on Spark, and hudi-rs, read every kind of table that rounds write, and write between rounds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import hudi
import pyarrow as pa
import pytest

from lakeward.bucketing.assign import assign
from lakeward.errors import ForeignRowsFound
from lakeward.lake.hudi.plugin import open_lake
from lakeward.model import Bucket, BucketFunction, Column, parse_type
from lakeward.spi import LakeStorage
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, B1, COLUMNS, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog
from tests.hudi.engine import HudiOnSpark

pytestmark = [
    # Py4J leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*socket.socket.*:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*unclosed <socket.*:ResourceWarning"),
]
SUITE = LakeSuite()
REMOVE = {"table.datalake.foreign-rows": "remove"}


@pytest.fixture
def lake(tmp_path: Path) -> LakeStorage:
    return open_lake({"warehouse": str(tmp_path / "warehouse")})


def home(number: int) -> Bucket:
    """Where Hudi's bucket index looks for a key."""
    kind = parse_type("BIGINT NOT NULL")
    return Bucket("", int(assign(BucketFunction.HUDI, [pa.array([number])], [kind], 2)[0]))


def change(log: ScriptedLog, chance: random.Random, count: int = 12) -> None:
    for _ in range(count):
        number = chance.randrange(16)
        if chance.random() < 0.3:
            log.delete(home(number), row(number))
        else:
            log.upsert(home(number), row(number, f"change {chance.randrange(1000)}"))


def upserted(lake: LakeStorage, rounds: int = 3, **options: Any) -> tuple[ScriptedLog, random.Random]:
    log, chance = SUITE.make_log(lake, primary_key=("id",), **options), random.Random(7)
    for _ in range(rounds):
        change(log, chance)
        LakeRound.plan(lake, log).run()
    return log, chance


def check(engine: HudiOnSpark, lake: LakeStorage, log: ScriptedLog) -> None:
    """All readers agree with the log, whether or not Hudi asks its metadata table."""
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    expected = engine.expected()
    assert engine.rows(**{"hoodie.metadata.enable": "true"}) == expected
    assert engine.rows(**{"hoodie.metadata.enable": "false"}) == expected
    found = [r for b in hudi.HudiTableBuilder.from_base_uri(engine.root).build().read() for r in b.to_pylist()]
    assert sorted((r["__bucket"], r["__offset"], r["id"], r["name"]) for r in found) == expected


def test_rounds_on_a_table_that_hudi_writes_too(lake: LakeStorage, spark: Any) -> None:
    """Ours, then Hudi's with its metadata table on, then ours: no reader misses a row."""
    log, chance = upserted(lake, properties=REMOVE)
    engine = HudiOnSpark(spark, lake, log.table)
    check(engine, lake, log)
    theirs = {"id": 3, "name": "theirs", "__bucket": home(3).number, "__offset": 10**9}
    engine.write([theirs], **{"hoodie.metadata.enable": "true"})
    assert (home(3).number, 10**9, 3, "theirs") in engine.rows(**{"hoodie.metadata.enable": "true"})
    assert "theirs" in {name for *_, name in engine.expected()}
    change(log, chance)
    LakeRound.plan(lake, log).run()
    check(engine, lake, log)


@pytest.mark.soak
def test_rows_of_others_stop_the_rounds_of_a_table_that_says_nothing(lake: LakeStorage, spark: Any) -> None:
    log, chance = upserted(lake)
    engine = HudiOnSpark(spark, lake, log.table)
    engine.write([{"id": 3, "name": "theirs", "__bucket": home(3).number, "__offset": 0}])
    change(log, chance)
    with pytest.raises(ForeignRowsFound) as stopped:
        LakeRound.plan(lake, log).run()
    assert stopped.value.rows == 1


@pytest.mark.soak
def test_rows_that_others_deleted_come_back(lake: LakeStorage, spark: Any) -> None:
    log, chance = upserted(lake, properties=REMOVE)
    engine = HudiOnSpark(spark, lake, log.table)
    number, offset, key, name = engine.expected()[0]
    engine.write([{"id": key, "name": name, "__bucket": number, "__offset": offset}], "delete")
    assert key not in {k for *_, k, _ in engine.rows()}
    change(log, chance)
    LakeRound.plan(lake, log).run()
    check(engine, lake, log)


@pytest.mark.soak
def test_hudis_services_between_rounds(lake: LakeStorage, spark: Any) -> None:
    """Compaction and cleaning of a PK table, by procedures of Hudi's."""
    log, chance = upserted(lake)
    engine = HudiOnSpark(spark, lake, log.table)
    engine.call("run_compaction", op="scheduleandexecute", options="hoodie.compact.inline.max.delta.commits=1")
    check(engine, lake, log)
    change(log, chance)
    LakeRound.plan(lake, log).run()
    check(engine, lake, log)
    engine.clean()
    change(log, chance)
    LakeRound.plan(lake, log).run()
    LakeRewrite(lake=lake, table=log.table).run()
    check(engine, lake, log)


@pytest.mark.soak
def test_a_clustering_of_a_log_table_between_rounds(lake: LakeStorage, spark: Any) -> None:
    log = SUITE.make_log(lake)
    engine = HudiOnSpark(spark, lake, log.table)
    for number in range(3):
        log.append(B0, row(number))
        log.append(B1, row(10 + number))
        LakeRound.plan(lake, log).run()
    check(engine, lake, log)
    engine.call("run_clustering", op="scheduleandexecute")
    check(engine, lake, log)
    log.append(B0, row(5))
    LakeRound.plan(lake, log).run()
    check(engine, lake, log)
    LakeRewrite(lake=lake, table=log.table).run()
    check(engine, lake, log)


@pytest.mark.soak
def test_a_column_more_partitions_and_an_incremental_query(lake: LakeStorage, spark: Any) -> None:
    columns = {**COLUMNS, "region": "STRING NOT NULL"}
    log = SUITE.make_log(lake, columns=columns, partition_keys=("region",))
    engine, eu, us = HudiOnSpark(spark, lake, log.table), Bucket("eu", 0), Bucket("u s/a".replace("/", "-"), 1)
    log.append(eu, row(1, region="eu"))
    log.append(us, row(2, region=us.partition))
    first = LakeRound.plan(lake, log).run()
    lake.catalog().add_columns(log.table, [Column(name="later", type=parse_type("INT"))])
    descriptor = log.table.descriptor
    grown = descriptor.schema.with_added([Column(name="later", type=parse_type("INT"))])
    log.table = log.table.with_descriptor(
        type(descriptor)(schema=grown, bucket_count=2, partition_keys=descriptor.partition_keys)
    )
    log.append(eu, row(3, region="eu", later=7))
    LakeRound.plan(lake, log).run()
    assert engine.rows() == engine.expected()
    frame = spark.read.format("hudi").load(engine.root)
    assert sorted((r.id, r.region, r.later) for r in frame.collect()) == [
        (1, "eu", None),
        (2, us.partition, None),
        (3, "eu", 7),
    ]
    assert frame.where("region = 'eu'").count() == 2
    since = lake.open_reader(log.table).load_snapshot(first.snapshot_id)
    assert since is not None
    query = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": str(since.sequence + 1),
    }
    assert [r.id for r in spark.read.format("hudi").options(**query).load(engine.root).collect()] == [3]
