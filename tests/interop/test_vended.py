# SPDX-License-Identifier: Apache-2.0
"""A catalog that vends credentials for two minutes: rounds, compactions, reads and files go past their end, each
process asks for its own, and none is logged or stored."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeward.lake.iceberg.plugin import IcebergLakeStorage, load
from lakeward.model import Bucket, LogSplit, OffsetRange, RoundId, SystemClock, TablePath
from lakeward.protocol.heartbeat import TableFinished
from lakeward.spi import WriteTask
from lakeward_testing.clock import ManualClock
from tests.kit.iceberg.vending import VendingWorld, vending_catalog
from tests.kit.inprocess import InProcessLakeward

PATH, SECRET = "db.t", "XYZZY"
SMALL_GROUPS: dict[str, Any] = {"iceberg.write.parquet.row-group-limit": "10"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(SystemClock().now_ms())


@pytest.fixture
def world(tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[VendingWorld]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with vending_catalog(str(tmp_path / "catalog.db"), clock) as world:
        yield world


def open_lake(world: VendingWorld, clock: ManualClock) -> IcebergLakeStorage:
    lake = load(world.options)
    assert isinstance(lake, IcebergLakeStorage)
    lake.connection.clock = clock
    return lake


@pytest.fixture
def lakeward(tmp_path: Path, world: VendingWorld, clock: ManualClock) -> Iterator[InProcessLakeward]:
    lake = open_lake(world, clock)
    parts = InProcessLakeward(tmp_path / "hot", lake, clock)
    yield parts
    parts.close()
    lake.connection.close()


def rows(*ids: int, v: str = "v") -> list[dict[str, Any]]:
    return [{"id": i, "v": v} for i in ids]


@pytest.mark.parametrize("version", ["2", "3"])
def test_rounds_compactions_and_reads_go_past_the_end_of_credentials(
    lakeward: InProcessLakeward, world: VendingWorld, clock: ManualClock, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    given: dict[str, Any] = {"iceberg.format-version": version}
    lakeward.create(PATH, "id bigint not null, v string", primary_key="id", **given)
    for number in range(4):
        lakeward.upsert(PATH, rows(*range(number, number + 10), v=f"v{number}"))
        (end,) = lakeward.tier(PATH)
        assert isinstance(end, TableFinished)
        clock.advance(121)
    assert isinstance(lakeward.compact(PATH), TableFinished)
    clock.advance(121)
    found = {r["id"]: r["v"] for r in lakeward.read(PATH, mode="lake").to_table().to_pylist()}
    assert found == {i: f"v{min(i, 3)}" for i in range(13)}
    lakeward.coordinator.upkeep.run()
    assert world.gate.refused == []
    assert len(world.gate.ends_at_ms) > 5, "renewed, not asked for once"
    assert SECRET not in caplog.text
    stored = [p for p in lakeward.folder.rglob("*") if p.is_file() and SECRET.encode() in p.read_bytes()]
    assert stored == []


def test_a_writer_in_another_process_asks_the_catalog_itself(
    lakeward: InProcessLakeward, world: VendingWorld, clock: ManualClock
) -> None:
    """As an executor: it gets the handle alone, and its file is open for longer than a credential lasts."""
    table = lakeward.create(PATH, "id bigint not null, v string", **SMALL_GROUPS)
    handle = lakeward.lake.open_committer(table).begin(RoundId("r"))
    assert SECRET.encode() not in handle
    lakeward.append(PATH, rows(*range(30)))
    executor, split = open_lake(world, clock), LogSplit(bucket=Bucket("", 0), range=OffsetRange(0, 30), index=0)
    task = WriteTask(round_id=RoundId("r"), table=table, split=split, attempt=0, handle=handle)
    writer = executor.open_writer(task)
    for batch in lakeward.store.read_log(table, split.bucket, 0, 30):
        for start in range(0, batch.num_rows, 10):
            writer.write(batch.slice(start, 10).drop_columns(["__change_type"]))
            clock.advance(100)
    assert writer.complete() is not None
    assert world.gate.refused == []
    executor.connection.close()


def test_a_scan_goes_on_where_a_credential_ends(
    lakeward: InProcessLakeward, world: VendingWorld, clock: ManualClock
) -> None:
    table = lakeward.create(PATH, "id bigint not null, v string", **SMALL_GROUPS)
    lakeward.append(PATH, rows(*range(200)))
    lakeward.tier(PATH)
    reader = open_lake(world, clock).open_reader(table)
    head = reader.load_base().head
    assert head is not None
    seen = []
    for batch in reader.scan(head, columns=["id"]):
        seen += batch.column("id").to_pylist()
        clock.advance(121)
    assert sorted(seen) == list(range(200))
    assert world.gate.refused == []


def test_a_table_that_is_gone_is_an_error_and_not_a_hang(lakeward: InProcessLakeward, clock: ManualClock) -> None:
    lakeward.create(PATH, "id bigint not null, v string")
    lakeward.lake.catalog().drop(TablePath.parse(PATH))
    assert not lakeward.lake.catalog().exists(TablePath.parse(PATH))
