# SPDX-License-Identifier: Apache-2.0
"""What else happens to a table while it is compacted, on the real store and Iceberg: readers, expiry, retention, a
resync, a drop, a rewrite by others, orphan removal after each step at which a compaction can break off."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lakeward.coordinator.state.record import LakeSide
from lakeward.errors import FaultInjected, LakewardError, SplitFailed, TableBusy, to_wire
from lakeward.hot.embedded.options import StoreOptions
from lakeward.model import Bucket, SystemClock, TablePath
from lakeward.model.side import COMPACT
from lakeward.protocol.heartbeat import HeartbeatRequest, TableFailed, TableFinished
from lakeward.protocol.operate import ResyncChoice
from lakeward.tiering.work.options import CompactionPolicy
from lakeward.verify import verify_table
from lakeward_testing.clock import ManualClock
from lakeward_testing.lakes.rewriting import LakeRewrite
from tests.kit.inprocess import JOB, InProcessLakeward
from tests.property.maintenance_program import POINTS, acting
from tests.property.union_program import iceberg_lake

PATH = TablePath("db", "t")
SHORT = {"iceberg.history.expire.max-snapshot-age-ms": "1", "iceberg.history.expire.min-snapshots-to-keep": "1"}


class Yard:
    """A PK table of two buckets with four rounds in its lake, and the dict that it must equal."""

    def __init__(self, folder: Path, **properties: str) -> None:
        self.clock = ManualClock(SystemClock().now_ms())  # orphan removal looks at the age of real files
        store = StoreOptions.with_settings({"log.segment.file-size": "1kb"})
        self.world = InProcessLakeward(folder, iceberg_lake(folder), self.clock, store)
        options = replace(self.world.world.options, compaction=CompactionPolicy(fan_in=2, max_deleted=0.1))
        self.world.world = replace(self.world.world, options=options)
        self.create(**properties)
        self.chance, self.rows = random.Random(18), dict[int, str]()
        for _ in range(4):
            self.change_and_tier()

    def create(self, **properties: str) -> None:
        self.world.create(str(PATH), "id bigint not null, v string", primary_key="id", buckets=2, **properties)

    def change_and_tier(self) -> None:
        gone = self.chance.sample(sorted(self.rows), min(3, len(self.rows)))
        new = {i: f"v{self.chance.randrange(1_000)}" for i in self.chance.sample(range(30), 10)}
        self.world.delete(str(PATH), [{"id": i} for i in gone])
        self.world.upsert(str(PATH), [{"id": i, "v": v} for i, v in new.items()])
        self.rows = {i: v for i, v in self.rows.items() if i not in gone} | new
        self.world.tier(str(PATH))

    def compact(self, point: str, act: Callable[[], object]) -> TableFinished | TableFailed:
        with acting(point, act):
            return self.world.compact(str(PATH))

    def expire(self) -> None:
        self.clock.advance(60)
        self.world.coordinator.upkeep.expire(self.side)

    def remove_orphans(self) -> None:
        self.clock.advance(1_000)
        self.world.coordinator.schedule.tick()
        self.world.coordinator.upkeep.remove_orphans_of(self.side)

    @property
    def side(self) -> LakeSide:
        return self.world.coordinator.board.find(PATH)

    @property
    def strays(self) -> set[str]:
        """Files of ours in the lake's folders that no snapshot knows."""
        upkeep = self.world.lake.open_maintenance(self.world.store.load_table(PATH))
        return {f.path for f in upkeep.list_files()} - upkeep.references()

    def check(self) -> None:
        for mode in ("union", "lake"):
            table = self.world.read(str(PATH), mode=mode).to_table()
            assert dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True)) == self.rows
            assert table.num_rows == len(self.rows)
        certificate = verify_table(
            self.world.plugin, PATH, deep=True, clock=self.clock, open_storage=lambda _plan: self.world.lake
        )
        assert [(f.kind, f.words) for f in certificate.all_findings] == []


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    opened = Yard(tmp_path)
    yield opened
    opened.world.close()


@pytest.fixture
def expiring(tmp_path: Path) -> Iterator[Yard]:
    opened = Yard(tmp_path, **SHORT)
    yield opened
    opened.world.close()


def landed(end: TableFinished | TableFailed) -> TableFinished:
    assert isinstance(end, TableFinished), end
    assert end.result is not None
    assert end.result.snapshot_id is not None
    return end


@pytest.mark.parametrize("point", POINTS)
def test_what_a_compaction_that_breaks_off_leaves_behind_is_removed(yard: Yard, point: str) -> None:
    def fail() -> None:
        raise FaultInjected(point=point)

    yard.compact(point, fail)
    yard.check()
    yard.change_and_tier()
    yard.remove_orphans()
    assert yard.strays == set()
    yard.check()
    yard.clock.advance(1_000)
    yard.world.compact(str(PATH))
    yard.check()


@pytest.mark.parametrize("point", ["compact.planned", "compact.written", "compact.before-lake-commit"])
def test_expiry_beside_it_takes_no_input(expiring: Yard, point: str) -> None:
    landed(expiring.compact(point, expiring.expire))
    expiring.expire()
    expiring.check()
    assert expiring.strays == set()


def test_a_reader_on_the_old_snapshot_keeps_its_files_until_it_is_done(expiring: Yard) -> None:
    before, old = dict(expiring.rows), expiring.world.read(str(PATH))
    landed(expiring.compact("compact.written", expiring.change_and_tier))
    expiring.expire()
    table = old.to_table()
    assert dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True)) == before
    expiring.check()
    expiring.change_and_tier()
    expiring.expire()
    upkeep = expiring.world.lake.open_maintenance(expiring.world.store.load_table(PATH))
    assert old.bound.snapshot_id not in {
        s.snapshot_id for s in expiring.world.lake.open_reader(expiring.side.info).snapshots()
    }
    assert {f.path for f in upkeep.list_files()} == upkeep.references()


def test_the_log_is_cut_beside_it(yard: Yard) -> None:
    """What lies in the lake is no longer needed hot, rewritten or not."""

    starts: list[int] = []

    def cut() -> None:
        yard.clock.advance(8 * 86_400)
        yard.world.coordinator.read_lake(PATH)  # retention believes the lake alone
        hot = yard.world.store.hot_table(yard.side.info)
        for bucket in hot.opened():
            bucket.kv(hot.schemas).tick()
        yard.world.store.upkeep.upload()
        yard.world.store.upkeep.expire()
        starts.extend(b.start for b in yard.world.store.bounds(yard.side.info).values())

    yard.compact("compact.written", cut)
    assert any(starts)
    yard.check()
    yard.change_and_tier()
    yard.check()


@pytest.mark.parametrize("point", ["compact.before-write", "compact.written", "compact.before-lake-commit"])
def test_a_resync_beside_it(yard: Yard, point: str) -> None:
    def resync() -> None:
        yard.world.coordinator.operations.resync(PATH, ResyncChoice.RESYNC)
        yard.world.tier(str(PATH))

    yard.compact(point, resync)
    yard.check()
    yard.change_and_tier()
    yard.check()


@pytest.mark.parametrize("point", ["compact.planned", "compact.written", "compact.before-lease-check"])
def test_a_drop_under_it_leaves_the_lake_as_it_was(yard: Yard, point: str) -> None:
    info, reader = yard.side.info, yard.world.lake.open_reader(yard.side.info)
    head = reader.load_base().head
    end = yard.compact(point, lambda: yard.world.federation.drop(PATH))
    assert isinstance(end, TableFailed)
    assert end.given_back
    assert yard.world.lake.open_reader(info).load_base().head == head


def test_a_group_that_lost_an_input_is_left_out_alone(yard: Yard) -> None:
    rewrite = LakeRewrite(lake=yard.world.lake, table=yard.side.info, buckets=(Bucket("", 0),))
    end = landed(yard.compact("compact.written", rewrite.run))
    assert end.result is not None
    assert (end.result.groups_left_out, end.result.files) == (1, 1)
    assert end.force_finished
    yard.check()
    yard.remove_orphans()
    assert yard.strays == set()


def test_what_a_compaction_cannot_do_is_not_tried(yard: Yard) -> None:
    yard.world.coordinator.operations.pause(PATH)
    with pytest.raises(LakewardError, match="paused"):
        yard.world.compact(str(PATH))


def test_a_table_in_quarantine_is_not_compacted(yard: Yard) -> None:
    world, broken = yard.world, to_wire(SplitFailed(table=str(PATH), split="s", kind="k", text="x"))
    for number in range(10):
        world.upsert(str(PATH), [{"id": number, "v": "late"}])
        yard.clock.advance(3_600)
        handed = world.take(str(PATH))
        assert handed is not None
        failed = TableFailed(table_id=handed.table_id, epoch=handed.epoch, error=broken)
        world.coordinator.heartbeat(HeartbeatRequest(job=JOB, instance=world.instance, slots=1, failed=(failed,)))
    assert yard.side.state == "quarantined"
    with pytest.raises(TableBusy, match="quarantined"):
        world.compact(str(PATH))
    assert world.take(str(PATH), COMPACT) is None
