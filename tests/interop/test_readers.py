# SPDX-License-Identifier: Apache-2.0
"""DuckDB, DataFusion on iceberg-rust and PyIceberg read row for row what rounds of ours wrote."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from lakeward.bucketing import assign
from lakeward.lake.iceberg.plugin import IcebergLakeStorage, load
from lakeward.model import Bucket, BucketFunction, Column, parse_type
from lakeward_testing.lakes import LakeRound
from lakeward_testing.lakes.ddl import EVERY_TYPE
from lakeward_testing.lakes.suite import B0, B1, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog
from tests.kit.iceberg.engines import read_datafusion, read_duckdb, read_pyiceberg
from tests.kit.iceberg.s3 import s3_store

AsRows = Callable[[pa.Table, IcebergLakeStorage, ScriptedLog], list[Any]]
Read = Callable[..., pa.Table]
ENGINES: Mapping[str, Read] = {"duckdb": read_duckdb, "datafusion": read_datafusion, "pyiceberg": read_pyiceberg}
every_engine = pytest.mark.parametrize("engine", ENGINES)


def location(lake: IcebergLakeStorage, log: ScriptedLog) -> str:
    return lake.connection.load(log.table.path).metadata_location


def check_all(lake: IcebergLakeStorage, log: ScriptedLog, as_rows: AsRows) -> None:
    """Every engine, by metadata path: no server is running here."""
    for name, read in ENGINES.items():
        assert as_rows(read(location(lake, log)), lake, log) == log.expected(log.ends()), name


@every_engine
def test_every_type_and_null(lake: IcebergLakeStorage, as_rows: AsRows, engine: str) -> None:
    log = LakeSuite().make_log(lake, columns={name: kind for name, (kind, _) in EVERY_TYPE.items()})
    log.append(B0, *({name: values[i] for name, (_, values) in EVERY_TYPE.items()} for i in range(3)))
    log.append(B1, dict.fromkeys(EVERY_TYPE))
    LakeRound.plan(lake, log).run()
    assert as_rows(ENGINES[engine](location(lake, log)), lake, log) == log.expected(log.ends())


@pytest.mark.parametrize("key", ["id", "name"])
def test_upserts_over_rounds_under_a_bucket_transform(lake: IcebergLakeStorage, as_rows: AsRows, key: str) -> None:
    """Partitions of three types, buckets by Iceberg's own function, a column added half-way, deletes in every round."""
    columns = {
        "id": "BIGINT NOT NULL",
        "name": "STRING NOT NULL",
        "region": "STRING NOT NULL",
        "day": "DATE NOT NULL",
        "shelf": "INT NOT NULL",
    }
    log = LakeSuite().make_log(
        lake,
        columns=columns,
        primary_key=(key, "region", "day", "shelf"),
        partition_keys=("region", "day", "shelf"),
        bucket_keys=(key,),
        bucket_function=BucketFunction.ICEBERG,
    )
    chance = random.Random(3)
    for number in range(5):
        if number == 2:
            _add_column(lake, log, Column(name="later", type=parse_type("DECIMAL(9, 2)")))
        _change(log, chance, key, 40)
        LakeRound.plan(lake, log).run()
        check_all(lake, log, as_rows)


def _change(log: ScriptedLog, chance: random.Random, key: str, count: int) -> None:
    for _ in range(count):
        number = chance.randrange(12)
        made: dict[str, Any] = {"id": number, "name": f"name {number}", "region": chance.choice(["eu", "ü s"])}
        made |= {"day": chance.choice([date(2024, 2, 29), date(1969, 12, 31)]), "shelf": chance.choice([-1, 7])}
        if "later" in log.table.schema.names:
            made["later"] = None
        kind = log.table.schema.column(key).type
        hashed = int(
            assign(BucketFunction.ICEBERG, [pa.array([made[key]])], [kind], log.table.descriptor.bucket_count)[0]
        )
        bucket = Bucket(f"{made['region']}${made['day']}${made['shelf']}", hashed)
        log.delete(bucket, made) if chance.random() < 0.3 else log.upsert(bucket, made)


def _add_column(lake: IcebergLakeStorage, log: ScriptedLog, column: Column) -> None:
    lake.catalog().add_columns(log.table, [column])
    descriptor = log.table.descriptor
    log.table = log.table.with_descriptor(replace(descriptor, schema=descriptor.schema.with_added([column])))
    for records in log._records.values():  # rows from before the column have a null in it
        for record in records:
            record.row.setdefault(column.name, None)


def test_composite_keys_and_sub_splits(lake: IcebergLakeStorage, as_rows: AsRows) -> None:
    log = LakeSuite().make_log(
        lake, columns={"a": "INT NOT NULL", "b": "STRING NOT NULL", "c": "DOUBLE"}, primary_key=("a", "b")
    )
    chance = random.Random(4)
    for _ in range(3):
        for _ in range(60):
            number = chance.randrange(4)
            made = {"a": number, "b": chance.choice("xyz"), "c": chance.random()}
            bucket = B0 if number % 2 else B1
            log.delete(bucket, made) if chance.random() < 0.2 else log.upsert(bucket, made)
        made_round = LakeRound.plan(lake, log)
        for bucket in (B0, B1):
            while made_round.start(bucket) < log.end(bucket):
                made_round.write(bucket, min(log.end(bucket), made_round.start(bucket) + 17))
        made_round.commit()
        check_all(lake, log, as_rows)


def test_a_warehouse_in_a_bucket(tmp_path: Any, as_rows: AsRows, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_store() as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        lake = load(
            {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": store.new_bucket(), **store.options}
        )
        log = LakeSuite().make_log(lake, primary_key=("id",))
        log.upsert(B0, *(row(i) for i in range(20)))
        LakeRound.plan(lake, log).run()
        log.upsert(B0, row(3, "new"))
        log.delete(B0, row(4))
        LakeRound.plan(lake, log).run()
        for engine, read in ENGINES.items():
            assert as_rows(read(location(lake, log), store.options), lake, log) == log.expected(log.ends()), engine
        lake.connection.close()
