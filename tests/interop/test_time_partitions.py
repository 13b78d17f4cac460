# SPDX-License-Identifier: Apache-2.0
"""Tables by the day, hour or month of a column, from puts to what other engines read of them and leave out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.transforms import DayTransform

from lakeward.errors import LakewardError
from lakeward.model import Bucket, TablePath
from lakeward.protocol.heartbeat import TableFailed
from lakeward.protocol.operate import ResyncChoice
from lakeward.verify import verify_table
from tests.kit.iceberg.engines import duckdb_connection
from tests.oracle.liveworld import LiveWorld, live_world

COLUMNS = "id bigint not null, ts timestamp_ltz(6) not null, v string"
DAYS = ("1969-12-31", "1970-01-01", "2026-11-18")
NOON = [datetime.fromisoformat(day).replace(hour=12, tzinfo=UTC) for day in DAYS]
LATE = NOON[2].replace(hour=23, minute=59, second=59, microsecond=999_999)

Row = tuple[int, datetime, str]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LiveWorld]:
    with live_world(tmp_path) as made:
        yield made


def spelled(*rows: Row) -> list[dict[str, Any]]:
    return [{"id": number, "ts": moment, "v": text} for number, moment, text in rows]


def tier(world: LiveWorld, table: str) -> None:
    failed = [e for e in world.lakeward.tier(table) if isinstance(e, TableFailed)]
    assert not failed, failed


def seen(world: LiveWorld, table: str, **options: Any) -> set[Row]:
    rows = world.lakeward.read(table, **options).to_table().to_pylist()
    found = {(row["id"], row["ts"], row["v"]) for row in rows}
    assert len(found) == len(rows)
    return found


def keyed(world: LiveWorld) -> set[Row]:
    """A table with rows of three days in the lake, and changes of them in the tail."""
    parts = world.lakeward
    parts.create("db.pk", COLUMNS, primary_key="id,ts", partition_by="day(ts)", buckets=2)
    parts.upsert("db.pk", spelled(*((number, moment, "old") for moment in NOON for number in range(3))))
    parts.upsert("db.pk", spelled((9, LATE, "old")))
    tier(world, "db.pk")
    parts.upsert("db.pk", spelled((0, NOON[0], "new"), (1, NOON[2], "new"), (7, NOON[1], "new")))
    parts.delete("db.pk", [{"id": 2, "ts": NOON[2]}, {"id": 0, "ts": NOON[1]}])
    rows = {(number, moment, "old") for moment in NOON for number in range(3)} | {(9, LATE, "old")}
    gone = {(0, NOON[0]), (1, NOON[2]), (2, NOON[2]), (0, NOON[1])}
    new = {(0, NOON[0], "new"), (1, NOON[2], "new"), (7, NOON[1], "new")}
    return {row for row in rows if row[:2] not in gone} | new


def test_a_keyed_table_is_one_table_to_every_reader(world: LiveWorld) -> None:
    expected = keyed(world)
    assert seen(world, "db.pk") == expected
    assert read_duckdb(world, "live", "SELECT id, ts, v FROM lake.db.pk") == expected
    tier(world, "db.pk")
    for mode in ("lake", "union"):
        assert seen(world, "db.pk", mode=mode) == expected
    assert read_duckdb(world, "default", "SELECT id, ts, v FROM lake.db.pk") == expected
    assert set(map(str, world.lakeward.store.partitions(world.lakeward.store.load_table(PATH)))) == set(DAYS)
    compacted = world.lakeward.compact("db.pk")
    assert not isinstance(compacted, TableFailed), compacted
    assert seen(world, "db.pk", mode="lake") == expected
    certificate = verify_table(
        world.lakeward.plugin, PATH, deep=True, open_storage=lambda _plan: world.lakeward.storage("")
    )
    assert certificate.holds, certificate


PATH = TablePath.parse("db.pk")


def read_duckdb(world: LiveWorld, warehouse: str, query: str) -> set[Row]:
    with duckdb_connection() as engine:
        attach = f"ATTACH '{warehouse}' AS lake (TYPE iceberg, ENDPOINT '{world.url}', AUTHORIZATION_TYPE 'none')"
        engine.execute(attach)
        return set(engine.execute(query).fetchall())


def test_a_filter_on_the_time_leaves_files_of_other_days_out(world: LiveWorld) -> None:
    expected = keyed(world)
    tier(world, "db.pk")
    first, after = NOON[2].replace(hour=0), NOON[2].replace(hour=0) + timedelta(days=1)
    inside = {row for row in expected if first <= row[1] < after}
    table = load_catalog("x", type="rest", uri=world.url, warehouse="default").load_table("db.pk")
    assert next((f.name, f.transform) for f in table.spec().fields) == ("ts_day", DayTransform())
    condition = f"ts >= '{first.isoformat()}' and ts < '{after.isoformat()}'"
    planned = [task.file for task in table.scan(row_filter=condition).plan_files()]
    assert planned
    assert {file.partition[0] for file in planned} == {(first - datetime(1970, 1, 1, tzinfo=UTC)).days}
    assert len(planned) < len(list(table.scan().plan_files()))
    for other in {task.file.file_path for task in table.scan().plan_files()} - {f.file_path for f in planned}:
        Path(other.removeprefix("file://")).unlink()  # whoever opens one of another day fails
    assert {(r["id"], r["ts"], r["v"]) for r in table.scan(row_filter=condition).to_arrow().to_pylist()} == inside
    assert seen(world, "db.pk", filter=[("ts", ">=", first), ("ts", "<", after)]) == inside
    assert read_duckdb(world, "default", f"SELECT id, ts, v FROM lake.db.pk WHERE {condition}") == inside
    with pytest.raises(LakewardError):
        seen(world, "db.pk")


def test_it_goes_on_after_a_resync_a_restart_and_a_lost_lake_table(world: LiveWorld) -> None:
    expected = keyed(world)
    world.lakeward.coordinator.operations.resync(PATH, ResyncChoice.RESYNC)
    tier(world, "db.pk")
    assert seen(world, "db.pk", mode="lake") == expected
    world.lakeward.storage("").connection.catalog.drop_table(("db", "pk"))  # type: ignore[attr-defined]
    world.lakeward.upsert("db.pk", spelled((6, NOON[0], "after")))
    assert any(isinstance(e, TableFailed) for e in world.lakeward.tier("db.pk"))
    world.lakeward.federation.restore_lake(PATH)
    tier(world, "db.pk")
    assert seen(world, "db.pk", mode="lake") == expected | {(6, NOON[0], "after")}
    world.restart()
    world.lakeward.upsert("db.pk", spelled((5, LATE, "after")))
    assert seen(world, "db.pk") == expected | {(6, NOON[0], "after"), (5, LATE, "after")}


def test_a_log_table_by_month_has_its_changelog_cuts_and_streams(world: LiveWorld) -> None:
    parts = world.lakeward
    columns = "id bigint not null, at date not null"
    more: dict[str, Any] = {"table.datalake.changelog": "default"}
    parts.create("db.log", columns, partition_by="month(at)", **more)
    rows = [{"id": n, "at": moment.date()} for n, moment in enumerate(NOON)]
    parts.append("db.log", rows)
    tier(world, "db.log")
    parts.append("db.log", [{"id": 9, "at": rows[0]["at"]}])
    found = {(r["id"], r["at"]) for r in parts.changes("db.log").to_table().to_pylist()}
    assert found == {(r["id"], r["at"]) for r in rows} | {(9, rows[0]["at"])}
    assert Bucket("1969-12", 0) in parts.store.freeze(parts.store.load_table(TablePath.parse("db.log")))
