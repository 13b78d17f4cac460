# SPDX-License-Identifier: Apache-2.0
"""A table on Delta from the hot store on: rounds, a compaction, expiry, reads of the past, verify."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lakeward.lake.delta.plugin import DeltaLakeStorage
from lakeward.model import SystemClock, TablePath
from lakeward.protocol.heartbeat import TableFinished
from lakeward.tiering.work.options import CompactionPolicy
from lakeward.verify import verify_table
from lakeward_testing.clock import ManualClock
from lakeward_testing.deltaforeign import DeltaForeignEngine
from tests.kit.inprocess import InProcessLakeward

PATH = TablePath("db", "t")


class Yard:
    """A PK table of two buckets, and the dict that it must equal."""

    def __init__(self, folder: Path, lake: DeltaLakeStorage) -> None:
        self.clock = ManualClock(SystemClock().now_ms())
        self.world = InProcessLakeward(folder, lake, self.clock)
        options = replace(self.world.world.options, compaction=CompactionPolicy(fan_in=2, max_deleted=0.1))
        self.world.world = replace(self.world.world, options=options)
        short = {"delta.history.expire.max-snapshot-age-ms": "3600000"}
        self.world.create(str(PATH), "id bigint not null, v string", primary_key="id", buckets=2, **short)
        self.chance, self.rows = random.Random(21), dict[int, str]()

    def change_and_tier(self) -> None:
        gone = self.chance.sample(sorted(self.rows), min(3, len(self.rows)))
        new = {i: f"v{self.chance.randrange(1_000)}" for i in self.chance.sample(range(30), 10)}
        self.world.delete(str(PATH), [{"id": i} for i in gone])
        self.world.upsert(str(PATH), [{"id": i, "v": v} for i, v in new.items()])
        self.rows = {i: v for i, v in self.rows.items() if i not in gone} | new
        self.world.tier(str(PATH))

    def read(self, **options: object) -> dict[int, str]:
        table = self.world.read(str(PATH), **options).to_table()
        return dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))

    def check(self) -> None:
        assert self.read(mode="union") == self.read(mode="lake") == self.rows
        certificate = verify_table(
            self.world.plugin, PATH, deep=True, clock=self.clock, open_storage=lambda _plan: self.world.lake
        )
        assert [(f.kind, f.words) for f in certificate.all_findings] == []


@pytest.fixture
def yard(tmp_path: Path, lake: DeltaLakeStorage) -> Iterator[Yard]:
    opened = Yard(tmp_path, lake)
    yield opened
    opened.world.close()


def test_rounds_compaction_and_expiry_leave_the_rows_right(yard: Yard, lake: DeltaLakeStorage) -> None:
    for _ in range(4):
        yard.change_and_tier()
    reader = lake.open_reader(yard.world.store.load_table(PATH))
    before, version = dict(yard.rows), reader.load_base().head
    files = reader.totals().data_files
    assert isinstance(yard.world.compact(str(PATH)), TableFinished)
    assert reader.totals().data_files < files
    yard.check()
    yard.change_and_tier()
    assert yard.read(as_of=version) == before
    yard.clock.advance(7_200)
    yard.world.coordinator.upkeep.expire(yard.world.coordinator.board.find(PATH))
    assert version not in {s.snapshot_id for s in reader.snapshots()}
    yard.change_and_tier()
    yard.check()


def test_verify_finds_a_row_that_others_altered(yard: Yard, lake: DeltaLakeStorage) -> None:
    yard.change_and_tier()
    table = yard.world.store.load_table(PATH)
    reader = lake.open_reader(table)
    head = reader.load_base().head
    assert head is not None
    (row, *_) = (r for b in reader.scan(head, columns=["id", "v", "__offset", "__bucket"]) for r in b.to_pylist())
    DeltaForeignEngine(lake.log(PATH)).insert([{**row, "__bucket": 0, "v": "altered"}])
    certificate = verify_table(yard.world.plugin, PATH, deep=True, clock=yard.clock, open_storage=lambda _plan: lake)
    assert certificate.all_findings
