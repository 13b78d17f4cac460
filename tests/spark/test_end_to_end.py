# SPDX-License-Identifier: Apache-2.0
"""Rows from a real server through a real Spark job into Iceberg, read back by DuckDB."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakeward.cli.sql.duckdblake import query_lake
from lakeward.client import Client
from lakeward_testing.faults import Fault, FaultAction
from lakeward_testing.waiting import wait_until
from tests.spark.conftest import SMALL_SPLITS
from tests.spark.processes import (
    Job,
    Server,
    check_exactly_once,
    lake_rows,
    lake_snapshots,
    status,
    tier_now,
    wait_tiered,
)
from tests.spark.processes import rounds as ended

pytestmark = pytest.mark.spark
FEWER = 200_000


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Fault:
    folder = tmp_path_factory.mktemp("held")
    return Fault(
        point="split.batch",
        action=FaultAction.PAUSE,
        table=f"e2e.big{FEWER}",
        file=str(folder / "pause"),
        once=str(folder / "once"),
    )


@pytest.fixture(scope="module")
def job(server: Server, held: Fault) -> Iterator[Job]:
    made = Job(server, "shared", settings=SMALL_SPLITS, faults=held.to_text())
    yield made
    code = made.stop()
    assert code == 0, made.text()[-3000:]


def rows(start: int, stop: int, name: str = "n") -> list[dict[str, Any]]:
    return [{"id": i, "name": f"{name}{i}"} for i in range(start, stop)]


def test_a_log_table_over_many_rounds(client: Client, job: Job) -> None:
    table = client.create_table("e2e.log", "id BIGINT, name STRING", buckets=2, freshness="1 s")
    for n in range(3):
        table.append(rows(100 * n, 100 * n + 100))
        wait_tiered(client, table, state=job.text)
        assert check_exactly_once(client, table) == 100 * (n + 1)


def test_no_new_offsets_make_no_snapshot(client: Client, job: Job) -> None:
    table = client.create_table("e2e.idle", "id BIGINT, name STRING", freshness="1 s")
    table.append(rows(0, 10))
    tier_now(client, table)
    before = lake_snapshots(client, table)
    tier_now(client, table)
    assert lake_snapshots(client, table) == before
    assert len(before) == 1
    assert before[0]["summary"]["lakeward.job"] == "shared"


def test_a_pk_table_with_updates_and_deletes_over_many_rounds(client: Client, job: Job) -> None:
    table = client.create_table("e2e.pk", "id BIGINT, name STRING", primary_key="id", buckets=2, freshness="1 h")
    table.upsert(rows(0, 200))
    tier_now(client, table)
    for n in range(3):
        table.upsert(rows(10 * n, 10 * n + 60, f"u{n}-"))
        table.delete([{"id": i} for i in range(n, 200, 17)])
        table.upsert(rows(n, n + 3, f"again{n}-"))
        tier_now(client, table)
        check_exactly_once(client, table)


def test_partitioned_tables_with_composite_keys(client: Client, job: Job) -> None:
    log = client.create_table("e2e.plog", "id BIGINT, day STRING", partition_by="day", freshness="1 h")
    pk = client.create_table(
        "e2e.ppk",
        "shop INT, id BIGINT, day STRING, name STRING",
        primary_key=("shop", "id", "day"),
        partition_by="day",
        buckets=2,
        freshness="1 h",
    )
    for day in ("mon", "tue", "wed"):
        log.append([{"id": i, "day": day} for i in range(20)])
        pk.upsert([{"shop": i % 3, "id": i, "day": day, "name": f"{day}{i}"} for i in range(30)])
        pk.upsert([{"shop": i % 3, "id": i, "day": "mon", "name": f"{day}!{i}"} for i in range(5)])
        pk.delete([{"shop": 0, "id": 3, "day": "mon"}])
        tier_now(client, log)
        tier_now(client, pk)
        check_exactly_once(client, log)
        check_exactly_once(client, pk)


EVERY_TYPE = """
    id BIGINT NOT NULL, b BOOLEAN, i8 TINYINT, i16 SMALLINT, i32 INT, f32 FLOAT, f64 DOUBLE, c CHAR(4), s STRING,
    bin BINARY(3),
    by BYTES, dec DECIMAL(20, 4), d DATE, t TIME(3), ts TIMESTAMP(6), tz TIMESTAMP_LTZ(6), a ARRAY<INT>, m MAP<STRING,
    INT>,
    r ROW<x INT, y STRING>
"""


def test_every_type(client: Client, job: Job) -> None:
    table = client.create_table("e2e.types", EVERY_TYPE, primary_key="id", freshness="1 h")
    moment = dt.datetime(2024, 2, 29, 12, 30, 15, 123456)
    full = {
        "b": True, "i8": -5, "i16": 300, "i32": 70_000, "f32": 1.5, "f64": 2.25, "c": "abcd", "s": "ünï",
        "bin": b"xyz", "by": b"\x00\x01",
        "dec": Decimal("12345.6789"), "d": moment.date(), "t": dt.time(1, 2, 3, 4000), "ts": moment,
        "tz": moment.replace(tzinfo=dt.UTC),
        "a": [1, None, 3], "m": [("k", 1)], "r": {"x": 1, "y": "z"},
    }  # fmt: skip
    table.upsert([{"id": 1, **full}, {"id": 2, **dict.fromkeys(full)}])
    tier_now(client, table)
    found = {r["id"]: r for r in lake_rows(client, table)}
    assert found[2] == {**found[2], **dict.fromkeys(full)}
    read = found[1]
    for name in set(full) - {"m", "tz"}:
        assert read[name] == full[name], name
    assert dict(read["m"]) == {"k": 1}
    assert read["tz"].timestamp() == full["tz"].timestamp()  # type: ignore[attr-defined]


def test_first_round_from_a_kv_snapshot_while_writes_go_on(client: Client, job: Job) -> None:
    table = client.create_table(
        "e2e.busy", "id BIGINT, name STRING", primary_key="id", buckets=2, freshness="1 s", lake=True
    )
    table.upsert(rows(0, 2_000))
    stop = threading.Event()

    def write() -> None:
        n = 0
        while not stop.wait(0.02):  # until both rounds are there, without keeping the machine from them
            table.upsert(rows(n % 50, n % 50 + 20, f"w{n}-"))
            table.delete([{"id": 1_000 + n % 100}])
            n += 1

    writer = threading.Thread(target=write)
    writer.start()
    wait_until(
        lambda: len(lake_snapshots(client, table)) >= 2,
        what="two rounds beside the writer",
        state=job.text,
    )
    stop.set()
    writer.join()
    tier_now(client, table)
    check_exactly_once(client, table)


def test_lake_enabled_on_a_table_that_has_data(client: Client, job: Job) -> None:
    tables = [
        client.create_table("e2e.late", "id BIGINT, name STRING", freshness="1 s", lake=False),
        client.create_table("e2e.latepk", "id BIGINT, name STRING", primary_key="id", freshness="1 s", lake=False),
    ]
    tables[0].append(rows(0, 50))
    tables[1].upsert(rows(0, 50))
    tables[1].upsert(rows(0, 10, "u"))
    for table in tables:
        client.alter_table(table.path, properties={"table.datalake.enabled": "true"})
        wait_tiered(client, table, state=job.text)
        assert check_exactly_once(client, table) == 50


def test_a_column_added_between_rounds(client: Client, job: Job) -> None:
    table = client.create_table("e2e.grow", "id BIGINT, name STRING", freshness="1 h")
    table.append(rows(0, 10))
    tier_now(client, table)
    table = client.alter_table(table.path, add_columns="extra INT")
    table.append([{"id": 10, "name": "x", "extra": 7}])
    tier_now(client, table)
    assert check_exactly_once(client, table) == 11
    assert [r["extra"] for r in lake_rows(client, table) if r["id"] == 10] == [7]


def test_one_tables_trouble_is_its_own(client: Client, job: Job) -> None:
    """A lake table that was dropped behind our back fails its table, with the reason, and no other."""
    broken = client.create_table("e2e.broken", "id BIGINT, name STRING", freshness="1 s")
    fine = client.create_table("e2e.fine", "id BIGINT, name STRING", freshness="1 s")
    client.server.ask("DELETE", "/iceberg/v1/namespaces/e2e/tables/broken")
    broken.append(rows(0, 5))
    fine.append(rows(0, 5))
    wait_tiered(client, fine, state=job.text)

    def has_failed() -> bool:
        """While a next try is under way there is no reason."""
        now = status(client, broken.path)
        return now["failures"] > 0 and "no longer in the catalog" in (now["reason"] or "")

    wait_until(has_failed, what="the failure", state=job.text)
    assert check_exactly_once(client, fine) == 5


@pytest.mark.parametrize("count", [FEWER, pytest.param(5_000_000, marks=pytest.mark.soak)])
def test_a_one_row_table_does_not_wait_for_a_big_one(count: int, client: Client, job: Job, held: Fault) -> None:
    """One of the big round's tasks stands still until the small table is in the lake; five million rows need no such
    help."""
    big = client.create_table(f"e2e.big{count}", "id BIGINT, name STRING", buckets=2, freshness="1 h")
    names = [f"name-{i}" for i in range(50_000)]
    for at in range(0, count, len(names)):
        big.append(pa.table({"id": range(at, at + len(names)), "name": names}))
    small = client.create_table(f"e2e.single{count}", "id BIGINT, name STRING", freshness="1 h")
    asking = threading.Thread(target=lambda: tier_now(client, big))
    asking.start()
    if count == FEWER:
        held.wait_reached()
    wait_until(lambda: status(client, big.path)["state"] == "tiering", what="the big round")
    small.append(rows(0, 1))
    tier_now(client, small)
    held.release()
    asking.join()
    wait_until(lambda: ended(client, big) and ended(client, small), what="both ends")
    assert ended(client, small)[-1]["ended_at_ms"] < ended(client, big)[-1]["ended_at_ms"]
    assert ended(client, big)[-1]["files"] > 4, "the big range was cut into sub-splits"
    assert check_exactly_once(client, small) == 1
    (found,) = query_lake(client, big.path, "SELECT count(*) AS rows, count(DISTINCT id) AS ids FROM lake")
    assert found == {"rows": count, "ids": count}
