# SPDX-License-Identifier: Apache-2.0
"""Snapshots leave an Iceberg table with the round's own commit, unless somebody needs them; their files go
afterwards.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.fs as fs
import pytest
from pyiceberg.table import Table

from lakeward.errors import CommitConflict, FaultInjected, SnapshotGone
from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.meta import expiry, manifests
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import SnapshotId, TablePath, new_round_id
from lakeward.protocol.heartbeat import TableFailed
from lakeward.spi import CommitProperties, Precondition
from lakeward_testing.clock import ManualClock
from lakeward_testing.faults import Faults
from lakeward_testing.icebergforeign import IcebergForeignEngine
from tests.kit.iceberg.folder import folder_options
from tests.kit.inprocess import InProcessLakeward

TABLE = "db.t"
AGE = {"iceberg.history.expire.max-snapshot-age-ms": "30000", "iceberg.history.expire.min-snapshots-to-keep": "2"}


class World:
    """A PK table with one key, so that every round replaces the row of the one before; rounds 40 s apart."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(now_ms=int(time.time() * 1000))
        self.lake = IcebergLakeStorage(IcebergConnection(folder_options(folder), self.clock))
        self.lakeward = InProcessLakeward(folder / "server", self.lake, self.clock)
        self.rounds = 0

    def create(self, **properties: str) -> None:
        keys: dict[str, Any] = {"table.datalake.freshness": "30s", **AGE, **properties}
        self.lakeward.create(TABLE, "id bigint not null, v string", primary_key="id", **keys)
        self.lakeward.coordinator.lakes.read_unseen()

    def restart(self) -> None:
        """With nothing kept in memory."""
        for kept in (manifests._LISTS, manifests.CACHE, expiry._PATHS):
            kept.clear()
        self.lakeward.restart()
        self.lakeward.coordinator.lakes.read_unseen()

    def round(self, count: int = 1) -> None:
        for _ in range(count):
            self.lakeward.upsert(TABLE, [{"id": 1, "v": str(self.rounds)}])
            self.rounds += 1
            ends = self.lakeward.tier(TABLE)
            assert ends
            assert not [e for e in ends if isinstance(e, TableFailed)]
            self.clock.advance(40)

    @property
    def record(self) -> Any:
        return self.lakeward.coordinator.board.find(TablePath.parse(TABLE))

    @property
    def table(self) -> Table:
        return self.lake.connection.load(TablePath.parse(TABLE))

    @property
    def snapshots(self) -> list[SnapshotId]:
        return [SnapshotId(str(s.snapshot_id)) for s in self.table.metadata.snapshots]

    def upkeep(self) -> int:
        return self.lakeward.coordinator.upkeep.expire(self.record)

    def marked(self) -> list[SnapshotId]:
        return [m.snapshot.snapshot_id for m in self.lakeward.coordinator.leases.marked(self.record.id)]

    def lease(self, snapshot_id: SnapshotId) -> Any:
        return self.lakeward.coordinator.leases.take(self.record.id, snapshot_id, {}, 600.0)

    def files(self) -> set[str]:
        """Everything in the table's folders but caches and the catalog's own files."""
        root = self.table.location().removeprefix("file://")
        found = fs.LocalFileSystem().get_file_info(fs.FileSelector(root, recursive=True))
        return {f"file://{i.path}" for i in found if i.is_file and not i.path.endswith((".offsets", ".metadata.json"))}

    def is_tidy(self) -> bool:
        needed = self.lake.open_maintenance(self.record.info).references()
        return self.files() == {path for path in needed if not path.endswith(".metadata.json")}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.lakeward.close()
    made.lake.connection.close()


def version(table: Table) -> int:
    return int(table.metadata_location.rpartition("/")[2].partition("-")[0])


def test_a_rounds_commit_takes_out_what_is_beyond_age_and_number(world: World) -> None:
    world.create()
    world.round(3)
    first, before = world.snapshots[0], version(world.table)
    assert len(world.snapshots) == 2, (
        "the third round is 40 s after the second took the place of the first, which went with it"
    )
    for _ in range(4):
        world.round()
        assert version(world.table) == before + 1, "one version of the metadata has both"
        assert len(world.snapshots) == 2
        assert first not in world.snapshots
        first, before = world.snapshots[0], version(world.table)
    world.upkeep()
    assert version(world.table) == before, "upkeep only deletes files where rounds do the rest"
    assert world.marked() == []
    assert world.is_tidy()
    assert world.lakeward.read(TABLE).to_table().to_pylist() == [{"id": 1, "v": "6"}]


def test_a_read_lease_holds_its_snapshot_back(world: World) -> None:
    world.create()
    world.round(2)
    first = world.snapshots[0]
    lease = world.lease(first)
    world.round(3)
    assert first in world.snapshots
    world.upkeep()
    assert len(list(world.lake.open_reader(world.record.info).scan(first))) == 1, "its files are there"
    world.lakeward.coordinator.release_read(lease.lease_id)
    world.round()
    assert first not in world.snapshots
    assert world.lease(first) is None, "a snapshot that went cannot be leased before its files are gone"
    assert world.upkeep() > 0
    assert world.is_tidy()


@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_a_tag_or_a_branch_keeps_its_snapshot(world: World, kind: str) -> None:
    world.create()
    world.round(2)
    first = world.snapshots[0]
    manage = world.table.manage_snapshots()
    (manage.create_tag(int(first), "kept") if kind == "tag" else manage.create_branch(int(first), "kept")).commit()
    world.round(3)
    assert first in world.snapshots
    world.upkeep()
    assert len(list(world.lake.open_reader(world.record.info).scan(first))) == 1
    manage = world.table.manage_snapshots()
    (manage.remove_tag("kept") if kind == "tag" else manage.remove_branch("kept")).commit()
    world.round()
    assert first not in world.snapshots
    world.upkeep()
    assert world.is_tidy()


def test_a_tag_put_on_a_snapshot_that_is_just_going_keeps_it(world: World) -> None:
    """Between the coordinator's answer and the commit: the commit is refused, prepared again, and leaves it."""
    world.create()
    world.round(2)
    first = world.snapshots[0]

    def tag(_facts: object) -> bool:
        world.table.manage_snapshots().create_tag(int(first), "late").commit()
        return False

    with Faults() as faults:
        faults.arm("round.before-lake-commit", when=tag)
        world.round()
    assert first in world.snapshots
    assert world.table.metadata.refs["late"].snapshot_id == int(first)
    assert world.marked() == [first]
    world.upkeep()
    assert world.marked() == [], "the round that was granted it is over"
    assert world.lease(first) is not None


def test_a_crash_between_commit_and_deletion_only_delays_it(world: World) -> None:
    world.create()
    world.round(2)
    IcebergForeignEngine(world.lake.connection.catalog, TablePath.parse(TABLE)).rewrite()
    world.round(3)
    world.restart()
    assert len(world.marked()) == 4, "two rounds before the rewrite, the rewrite, one after it"
    assert not world.is_tidy()
    hit = 0
    while world.marked():
        hit += 2
        assert hit < 60
        with Faults() as faults:
            faults.arm("lake.before-delete", hit=hit)
            try:
                world.upkeep()
            except FaultInjected:
                world.restart()
    assert hit > 2
    assert world.is_tidy()
    assert world.lakeward.read(TABLE).to_table().to_pylist() == [{"id": 1, "v": "4"}]


def test_a_round_that_was_granted_a_snapshot_and_sleeps_keeps_it_from_readers(world: World) -> None:
    """Until its commit can no longer land. Then the snapshot may be read again, or goes with another round."""
    world.create(**{"iceberg.history.expire.min-snapshots-to-keep": "1"})
    world.round(2)
    first = world.snapshots[0]
    world.lakeward.upsert(TABLE, [{"id": 1, "v": "asleep"}])

    seen: list[Any] = []

    def stop(_facts: object) -> bool:
        before = world.marked()
        world.upkeep()
        seen.append((before, world.marked(), world.lease(first)))
        raise FaultInjected(point="asleep")

    with Faults() as faults:
        faults.arm("round.before-lake-commit", when=stop)
        world.lakeward.coordinator.ask_now(TablePath.parse(TABLE))
        handed = world.lakeward.take(TABLE)
        assert handed is not None
        assert isinstance(world.lakeward.run(handed), TableFailed)
    assert seen == [([first], [first], None)], "the round may still land: nobody gets the snapshot"
    world.lake.catalog().set_properties(world.record.info, {"iceberg.history.expire.max-snapshot-age-ms": "600000"})
    assert first in world.snapshots
    world.clock.advance(600)
    base = world.lake.open_reader(world.record.info).load_base()
    world.lake.open_maintenance(world.record.info).fence(base, new_round_id(), 9)
    world.lake.catalog().set_properties(world.record.info, {"iceberg.history.expire.max-snapshot-age-ms": "6000000"})
    world.upkeep()
    assert first in world.snapshots
    assert world.marked() == []
    assert world.lease(first) is not None


def test_a_table_without_rounds_is_expired_by_upkeep(world: World) -> None:
    world.create()
    world.round(2)
    before = version(world.table)
    world.upkeep()
    assert version(world.table) == before, "a round was there just now"
    world.round(1)
    world.clock.advance(3_600)
    assert len(world.snapshots) == 2
    world.lake.catalog().set_properties(world.record.info, {"iceberg.history.expire.min-snapshots-to-keep": "1"})
    assert world.upkeep() > 0
    assert len(world.snapshots) == 1
    assert world.is_tidy()


def test_nothing_expires_without_auto_maintenance(world: World) -> None:
    world.create(**{"table.datalake.auto-maintenance": "false"})
    world.round(5)
    world.lakeward.coordinator.upkeep.run()
    assert len(world.snapshots) == 5


def test_a_request_that_takes_out_what_is_gone_already_is_a_conflict_and_not_lost(world: World) -> None:
    world.create(**{"table.datalake.auto-maintenance": "false"})
    world.round(4)
    info = world.record.info
    committer, reader = world.lake.open_committer(info), world.lake.open_reader(info)
    base = reader.load_base()
    ready = committer.prepare([], {}, base, CommitProperties(round_id=new_round_id(), epoch=9, job="test", offsets={}))
    assert [s.snapshot_id for s in ready.expirable] == world.snapshots[:3]
    gone = world.snapshots[0]
    world.lake.open_maintenance(info).expire([gone])
    with pytest.raises(CommitConflict) as refused:
        committer.commit(replace(ready, expire=(gone,)), Precondition(table_id=info.table_id, token=base.token))
    assert not refused.value.lost
    with pytest.raises(SnapshotGone):
        reader.load_snapshot(gone)


class Wild:
    """Random steps; after each, whatever a lease, a tag or the table itself holds can be read."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.chance = world, random.Random(seed)
        self.held: dict[Any, SnapshotId] = {}
        self.tags: dict[str, SnapshotId] = {}
        self.values: dict[SnapshotId, list[str]] = {}

    def step(self) -> None:
        getattr(
            self,
            self.chance.choice(
                ["round", "round", "round", "upkeep", "lease", "lease", "release", "tag", "untag", "rewrite", "restart"]
            ),
        )()
        self.check()

    def round(self) -> None:
        self.world.round()
        self.values[self.world.snapshots[-1]] = [str(self.world.rounds - 1)]

    def upkeep(self) -> None:
        self.world.clock.advance(self.chance.choice([0, 0, 300]))
        self.world.upkeep()

    def lease(self) -> None:
        chosen = self.chance.choice([*self.values])
        leased = self.world.lease(chosen)
        if leased is not None and chosen in self.world.snapshots:
            self.held[leased.lease_id] = chosen
        elif leased is not None:
            self.world.lakeward.coordinator.release_read(leased.lease_id)

    def release(self) -> None:
        if self.held:
            lease_id = self.chance.choice([*self.held])
            del self.held[lease_id]
            self.world.lakeward.coordinator.release_read(lease_id)

    def tag(self) -> None:
        name, chosen = f"t{self.chance.random()}", self.chance.choice(self.world.snapshots)
        self.world.table.manage_snapshots().create_tag(int(chosen), name).commit()
        self.tags[name] = chosen

    def untag(self) -> None:
        if self.tags:
            name = self.chance.choice([*self.tags])
            del self.tags[name]
            self.world.table.manage_snapshots().remove_tag(name).commit()

    def rewrite(self) -> None:
        IcebergForeignEngine(self.world.lake.connection.catalog, TablePath.parse(TABLE)).rewrite()
        self.values[self.world.snapshots[-1]] = [str(self.world.rounds - 1)]

    def restart(self) -> None:
        self.world.restart()

    def check(self) -> None:
        for lease_id in self.held:
            self.world.lakeward.coordinator.renew_read(lease_id, 600.0)
        there = set(self.world.snapshots)
        assert {*self.held.values(), *self.tags.values()} <= there
        reader = self.world.lake.open_reader(self.world.record.info)
        for snapshot_id in there:
            rows = [row["v"] for batch in reader.scan(snapshot_id) for row in batch.to_pylist()]
            assert rows == self.values[snapshot_id]


def run_wild(world: World, seed: int, steps: int) -> None:
    world.create()
    wild = Wild(world, seed)
    wild.round()
    for _ in range(steps):
        wild.step()
    for lease_id in wild.held:
        world.lakeward.coordinator.release_read(lease_id)
    for name in wild.tags:
        world.table.manage_snapshots().remove_tag(name).commit()
    world.round(3)
    world.upkeep()
    assert len(world.snapshots) == 2
    assert world.is_tidy()


@pytest.mark.parametrize("seed", range(3))
def test_what_somebody_holds_stays_whatever_comes(world: World, seed: int) -> None:
    run_wild(world, seed, 25)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_what_somebody_holds_stays_whatever_comes_at_length(world: World, seed: int) -> None:
    run_wild(world, seed, 60)
