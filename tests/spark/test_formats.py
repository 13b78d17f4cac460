# SPDX-License-Identifier: Apache-2.0
"""Rows from a real server through a real Spark job into other formats than Iceberg; union reads in Arrow and Spark,
compaction, verify."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import lakeward.spark
from lakeward.client import Client, Table
from lakeward.model import BUCKET, OFFSET, SYSTEM_COLUMNS_PROPERTY, TablePath
from lakeward.protocol import routes
from lakeward.read.arrow import request_of
from lakeward.read.spark.batch import read_frame
from lakeward.read.spark.schema import parquet_schema
from lakeward.spi import load_lake
from lakeward.verify import verify_table
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.rounds import LakeRound
from lakeward_testing.lakes.suite import B0, LakeSuite
from lakeward_testing.waiting import wait_until
from tests.spark.conftest import SMALL_SPLITS
from tests.spark.processes import Job, Server, rounds, tier_now

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:.*socket.socket.*:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*unclosed <socket.*:ResourceWarning"),
    # mapInArrow looks for pandas, and warns of its version where it is installed.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

FORMATS = ["paimon", *(pytest.param(name, marks=pytest.mark.soak) for name in ("delta", "lance", "hudi"))]
FEW_FILES = {"LAKEWARD_COMPACTION__FAN_IN": "2"}


@pytest.fixture(scope="module", params=FORMATS)
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, format: str) -> Iterator[Server]:
    settings = {"datalake.format": format, "table.datalake.auto-compaction": "true"}
    made = Server(tmp_path_factory.mktemp(format), settings)
    yield made
    made.stop()


@pytest.fixture(scope="module", params=["threads", pytest.param("spark", marks=pytest.mark.soak)])
def job(server: Server, request: pytest.FixtureRequest) -> Iterator[Job]:
    settings = {**SMALL_SPLITS, **FEW_FILES}
    made = Job(server, request.param, spark=request.param == "spark", settings=settings)
    yield made
    code = made.stop()
    assert code == 0, made.text()[-3000:]


def rows(start: int, stop: int, name: str) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"{name}{i}", "day": f"d{i % 2}"} for i in range(start, stop)]


def by_id(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda r: (r["id"], r["name"]))


def check(client: Client, server: Server, spark: Any, table: Table, expected: list[dict[str, Any]]) -> None:
    """Union read and lake alone, in Arrow and Spark, are what was written; so says verify."""
    union = client.read(table.path).to_table().to_pylist()
    assert by_id(union) == by_id(expected)
    frame = lakeward.spark.read(spark, table.path, server=server.url)
    assert by_id([r.asDict() for r in frame.collect()]) == by_id(expected)
    certificate = verify_table(client.plugin, TablePath.parse(table.path), deep=True)
    assert certificate.holds, certificate


def compact(client: Client, table: Table, job: Job) -> None:
    client.server.ask("POST", routes.MAINTAIN.format(table=table.path))
    wait_until(
        lambda: any(r["kind"] == "compact" and r["files_replaced"] > 1 for r in rounds(client, table)),
        what=f"a compaction of {table.path}",
        state=job.text,
    )


def test_log_and_pk_tables(client: Client, server: Server, job: Job, spark: Any) -> None:
    work(client, server, job, spark, job.name, {})


@pytest.mark.soak
def test_clean_log_and_pk_tables(client: Client, server: Server, job: Job, spark: Any, format: str) -> None:
    if format != "paimon":
        return  # it has no tables without system columns
    log = work(client, server, job, spark, f"{job.name}_clean", {SYSTEM_COLUMNS_PROPERTY: "false"})
    request = request_of(log.path, system_columns=True)
    frame, opened = read_frame(spark, client.plugin, request)
    try:
        found = [(r["day"], r[BUCKET], r[OFFSET]) for r in frame.collect()]
    finally:
        opened.close()
    assert len(set(found)) == len(found) == 300
    assert min(offset for _, _, offset in found) == 0


def work(client: Client, server: Server, job: Job, spark: Any, database: str, properties: dict[str, str]) -> Table:
    columns = "id BIGINT NOT NULL, name STRING, day STRING NOT NULL"
    make = partial(client.create_table, columns=columns, buckets=2, freshness="1 h", properties=properties)
    log, pk = make(f"{database}.log", partition_by="day"), make(f"{database}.pk", primary_key="id")
    logged, truth = list[dict[str, Any]](), dict[int, dict[str, Any]]()
    for number in range(3):
        new = rows(40 * number, 40 * number + 100, f"v{number}-")
        log.append(new)
        pk.upsert(new)
        pk.delete([{"id": 40 * number + 7}])
        logged += new
        truth |= {r["id"]: r for r in new}
        truth.pop(40 * number + 7)
        tier_now(client, log)
        tier_now(client, pk)
    check(client, server, spark, log, logged)
    check(client, server, spark, pk, list(truth.values()))
    compact(client, pk, job)
    tail = rows(150, 210, "tail")
    pk.upsert(tail)
    pk.delete([{"id": 0}])
    truth |= {r["id"]: r for r in tail}
    truth.pop(0)
    check(client, server, spark, pk, list(truth.values()))
    return log


MOMENT = dt.datetime(2024, 2, 29, 12, 30, 15, 123456)
TYPES: dict[str, tuple[str, Any]] = {
    "b": ("BOOLEAN", True),
    "i8": ("TINYINT", -5),
    "i16": ("SMALLINT", 300),
    "f32": ("FLOAT", 1.5),
    "c": ("CHAR(4)", "abcd"),
    "bin": ("BINARY(3)", b"xyz"),
    "dec": ("DECIMAL(20, 4)", Decimal("12345.6789")),
    "small": ("DECIMAL(9, 2)", Decimal("-1.25")),
    "d": ("DATE", MOMENT.date()),
    "ts": ("TIMESTAMP(6)", MOMENT),
    "ts3": ("TIMESTAMP(3)", MOMENT.replace(microsecond=123000)),
    "a": ("ARRAY<INT>", [1, None, 3]),
    "m": ("MAP<STRING, INT>", [("k", 1)]),
    "r": ("ROW<x INT, y STRING>", {"x": 1, "y": "z"}),
    "rows": ("ARRAY<ROW<x INT>>", [{"x": 1}, None]),
}


@pytest.mark.parametrize("lake_format", ["paimon", "delta"])
def test_spark_scans_what_is_left_to_it_by_itself(spark: Any, tmp_path: Path, lake_format: str) -> None:
    """Files of a round and of a compaction, asked for as a union read asks."""
    lake = load_lake(lake_format, {"warehouse": str(tmp_path)})
    columns = {"id": "BIGINT NOT NULL", **{name: sql for name, (sql, _) in TYPES.items()}}
    log = LakeSuite().make_log(lake, columns=columns)
    full = {name: value for name, (_, value) in TYPES.items()}
    log.append(B0, {"id": 1, **full}, {"id": 2, **dict.fromkeys(full)})
    LakeRound.plan(lake, log).run()
    reader, schema = lake.open_reader(log.table), parquet_schema(log.table, [*columns, BUCKET, OFFSET], {})
    for compacts in (False, True):
        if compacts:
            LakeRewrite(lake=lake, table=log.table).run()
        head = reader.load_snapshot()
        assert head is not None
        (file,) = reader.files(head.snapshot_id)
        assert not file.is_reader_needed
        one, two = spark.read.schema(schema).parquet(f"file://{file.path}").orderBy("id").collect()
        assert one.asDict(recursive=True) == {"id": 1, **full, "m": {"k": 1}, BUCKET: 0, OFFSET: 0}
        assert two.asDict() == {"id": 2, **dict.fromkeys(full), BUCKET: 0, OFFSET: 1}
