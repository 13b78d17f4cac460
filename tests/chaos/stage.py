# SPDX-License-Identifier: Apache-2.0
"""A stage for the model's traces: two jobs' rounds, orphan removal and other engines on a real Iceberg table, one step
at a time.

Each actor runs on a thread of its own and stands still at fault points; only one moves at a time, so a trace is
replayed as written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakeward.errors import CommitConflict, LakewardError
from lakeward.lake.iceberg.meta.types import to_arrow_schema
from lakeward.lake.iceberg.plugin import IcebergLakeStorage, load
from lakeward.lake.orphans import OrphanOptions, OrphanRemoval
from lakeward.model import (
    BUCKET,
    OFFSET,
    TIMESTAMP,
    Bucket,
    Epoch,
    InstanceId,
    JobName,
    RoundId,
    RoundOwner,
    SnapshotId,
    SystemClock,
    TablePath,
    new_instance_id,
    new_round_id,
)
from lakeward.protocol.heartbeat import HandedOut, HeartbeatRequest, TableFailed, TableFinished
from lakeward.protocol.operate import ResyncChoice
from lakeward.spi import LakeStorage, PluginCache
from lakeward.tiering.round.reconcile import adoption
from lakeward.tiering.round.round import Round
from lakeward.tiering.work.control import RoundControl
from lakeward.tiering.work.dispatch import DirectDispatcher
from lakeward.tiering.work.runner import JobWorld, RoundEnd
from lakeward.verify import verify_table
from lakeward_testing.clock import ManualClock
from lakeward_testing.faults import Fault, FaultAction, Faults
from lakeward_testing.icebergforeign import IcebergForeignEngine
from lakeward_testing.waiting import wait_until
from tests.chaos.compaction import CompactionActor
from tests.chaos.weak import Weak, WeakControl, WeakOrphanRemoval, WeakPlugin, WeakRound, WeakStorage, split_writers
from tests.kit.iceberg.flink import FlinkJob
from tests.kit.iceberg.folder import folder_options
from tests.kit.inprocess import InProcessLakeward

TABLE = "db.t"
LEASE_S = 121.0
OF_REMOVAL = frozenset({"fence", "fence_then_list", "fence_stops", "fence_idle", "fence_adopts", "keep_intent"})
LOST = ("commit-conflict", "commit-unknown", "lease-lost", "superseded")
LONG_AGO = OrphanOptions(grace_ms=0, max_age_ms=10**12)
"""Orphan removal at any moment, as in the model; intents are kept."""


class Actor:
    """One round of one job. `go` moves it to a fault point of its own round, `finish` to the end."""

    def __init__(
        self, stage: Stage, name: str, weak: Weak, round_id: RoundId | None = None, split_bytes: int = 1
    ) -> None:
        self.stage, self.weak, self._split_bytes = stage, weak, split_bytes
        self.job, self.instance = JobName(name), new_instance_id()
        self.round_id = round_id or new_round_id()
        self.control = (WeakControl if weak.off("resend_unknown") else RoundControl)(
            stage.folder / f"flag-{self.round_id}"
        )
        self.lake = stage.weakened(weak)
        self.end: RoundEnd | None = None
        self.took_effect = False
        """Known from the step that was played: its snapshot may have been expired since."""

        # Asked for when the round plans: a trace plays other things in between, and what is asked may be weakened.
        self.handed = replace(stage.hand_out(self.job, self.instance), committed=None)
        self._at: Fault | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        stage = self.stage
        lake = self.lake
        hot = WeakPlugin(stage.world, self.weak)
        plugins = PluginCache(open_hot=lambda _n, _o: hot, open_lake=lambda _n, _o: lake)
        options = replace(stage.world.world.options, target_bytes=self._split_bytes, min_work_s=0.0)
        if self.weak.off("max_age"):
            options = replace(options, commit=replace(options.commit, max_age_s=float("inf")))
        world = JobWorld(
            hot=hot,
            plugins=plugins,
            dispatcher=DirectDispatcher(plugins, stage.clock, threads=1),
            clock=stage.clock,
            options=options,
        )
        owner = RoundOwner(job=self.job, instance=self.instance, epoch=self.handed.epoch)
        kind = WeakRound if self.weak.off("prefix") else Round
        with split_writers(self.weak):
            self.end = kind(
                world=world, handed=self.handed, owner=owner, control=self.control, round_id=self.round_id
            ).run()

    # ---- steps -----------------------------------------------------------------------------------------------------
    def go(self, point: str, *, of_anyone: bool = False) -> Actor:
        """`of_anyone`: points of splits and files do not say whose they are; only one actor moves."""
        fault = self.stage.faults.arm(point, FaultAction.PAUSE, when=None if of_anyone else self._is_mine)
        self._move()
        wait_until(lambda: fault.is_reached() or not self._thread.is_alive(), what=f"{self.job} at {point}")
        assert fault.is_reached() or self.end is not None
        self._at = fault
        return self

    def plan(self) -> Actor:
        return self.go("round.before-write")

    def write(self, *kept: int) -> Actor:
        """Sub-splits of one row each; only those numbers succeed (none given: all)."""
        lost = self.stage.faults.arm(
            "split.before-read", times=None, when=lambda facts: bool(kept) and _start_of(facts["split"]) not in kept
        )
        self.go("round.written")
        self.stage.faults.disarm(lost)
        return self

    def write_short(self) -> Actor:
        """The round reaches its limit while the split reads: it stops at the first boundary between batches."""
        self.control.force()
        return self.go("round.written")

    def resolve(self) -> Actor:
        return self.go("round.before-lease-check")

    def check_lease(self) -> Actor:
        return self.go("round.before-lake-commit")

    def commit(self) -> Actor:
        return self.go("round.after-lake-commit")

    def commit_and_say(self, error: Callable[[], Exception] | None = None, *, at: str = "lake.after-commit") -> Actor:
        """The commit takes effect (or, at `lake.before-commit`, does not), and what comes back is this; stands before
        it looks.
        """
        self.stage.faults.arm(at, FaultAction.RAISE, error=error, when=self._is_mine)
        self.go("round.before-find")
        self.took_effect = at == "lake.after-commit"
        return self

    def commit_delayed(self) -> Actor:
        """The request travels on by itself; stands before it looks for its round."""
        self.lake.delayed = []
        return self.go("round.before-find")

    def deliver(self) -> None:
        """The late request arrives: it takes effect or is refused."""
        assert self.lake.delayed
        committer, committable, precondition = self.lake.delayed[0]
        with suppress(CommitConflict):
            committer.commit(committable, precondition)

    def conflict(self) -> CommitConflict:
        return CommitConflict(table=TABLE, round_id=self.round_id, reason="the transport's own retry", lost=False)

    def finish(self) -> RoundEnd | None:
        """To the end, which its coordinator hears of."""
        self._move()
        self._thread.join(120)
        assert not self._thread.is_alive(), f"{self.job} hangs"
        self.stage.hear(self)
        return self.end

    @property
    def was_told_lost(self) -> bool:
        """Its end says that nothing of it is in the lake. (One whose later sub-splits failed landed with what came
        before them.)
        """
        return isinstance(self.end, TableFailed) and self.end.error["code"] in LOST

    def _move(self) -> None:
        if not self._thread.ident:
            self._thread.start()
        elif self._at is not None:
            self._at.release()

    def _is_mine(self, facts: Any) -> bool:
        return bool(facts.get("round_id") == self.round_id)

    @property
    def is_over(self) -> bool:
        return not self._thread.ident or not self._thread.is_alive()


class Removal:
    """Orphan removal on a thread, standing still between its steps."""

    def __init__(self, stage: Stage, weak: Weak, *, sweep: bool = False) -> None:
        self.stage = stage
        self._at: Fault | None = None
        self._error: BaseException | None = None
        board = stage.world.coordinator.board
        record = board.find(TablePath.parse(TABLE))
        upkeep = stage.world.coordinator.upkeep
        removal = (WeakOrphanRemoval if weak.any else OrphanRemoval)(
            stage.weakened(weak),
            record.info,
            clock=SystemClock(),
            options=LONG_AGO,
            hold=weak.hold(lambda: upkeep.hold(record)),
            adopt=weak.adopt(lambda base: upkeep._adopt(record, base)),
        )
        if isinstance(removal, WeakOrphanRemoval):
            removal.weak = weak
        work: Callable[[], object] = (
            removal.sweep if sweep else lambda: removal.by_intents(weak.intents(stage.world.coordinator.intents))
        )
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except LakewardError as error:
            self._error = error

    def go(self, point: str) -> Removal:
        fault = self.stage.faults.arm(point, FaultAction.PAUSE)
        self._move()
        wait_until(lambda: fault.is_reached() or not self._thread.is_alive(), what=f"orphan removal at {point}")
        self._at = fault
        if not fault.is_reached():
            self.stage.faults.disarm(fault)
        return self

    def begin(self) -> Removal:
        return self.go("orphans.listed")

    def fence(self) -> Removal:
        """Up to the moment at which what goes has been decided: fenced, references read."""
        return self.go("orphans.before-delete")

    def finish(self) -> None:
        self._move()
        self._thread.join(120)
        assert not self._thread.is_alive(), "orphan removal hangs"

    def _move(self) -> None:
        if not self._thread.ident:
            self._thread.start()
        elif self._at is not None:
            self._at.release()


class Flink:
    """A Flink tiering job beside ours: commits what it planned, whatever the lake holds by then."""

    def __init__(self, stage: Stage) -> None:
        self.stage, info = stage, stage._info
        self.job = FlinkJob(stage.lake.connection.catalog, info.path, info.table_id)
        bucket = Bucket("", 0)
        start, self.stop = (
            stage.lake.open_reader(info).load_base().offsets.get(bucket, 0),
            stage.world.store.bounds(info)[bucket].end,
        )
        names = [*info.schema.names, OFFSET, TIMESTAMP]
        read = pa.Table.from_batches(
            [b.select(names) for b in stage.world.store.read_log(info, bucket, start, self.stop)]
        )
        lake = to_arrow_schema(stage.foreign.load().schema())
        self.rows = read.append_column(BUCKET, pa.array([0] * read.num_rows, pa.int32())).select(lake.names).cast(lake)

    def commit(self) -> None:
        self.job.commit(self.rows, [self.stop])

    def report(self) -> None:
        """Tells the coordinator, as a Flink job tells Fluss's."""
        info = self.stage._info
        owner = RoundOwner(job=JobName("flink"), instance=new_instance_id(), epoch=Epoch(0))
        self.stage.world.coordinator.commit(adoption(info, self.stage.lake.open_reader(info).load_base(), owner))


class Stage:
    """The table, its hot log, and everybody. `violations` says what is wrong once the play is over."""

    def __init__(
        self,
        folder: Path,
        faults: Faults,
        weak: Iterable[str] = (),
        *,
        pk: bool = False,
        lake: LakeStorage | None = None,
        buckets: int = 1,
    ) -> None:
        """`lake`: another format than Iceberg, for plays without other engines."""
        self.lake: Any = lake or load(folder_options(folder))
        self.faults, self.pk, self.folder = faults, pk, folder
        self.weak = Weak(frozenset(weak))
        self.world = InProcessLakeward(folder / "server", self.weakened(self.weak))
        self.clock = self.world.clock
        columns = "id bigint not null, v string"
        self.world.create(
            TABLE, columns, primary_key="id" if pk else "", buckets=buckets, **{"table.datalake.freshness": "1 h"}
        )
        self.actors: list[Actor] = []
        self.removals: list[Removal] = []
        self.compactions: list[CompactionActor] = []
        self.told: list[str] = []
        self._rows = 0

    def weakened(self, weak: Weak) -> Any:
        """The lake with some protection off; of other formats than Iceberg as it is."""
        return WeakStorage(self.lake, weak) if isinstance(self.lake, IcebergLakeStorage) else self.lake

    # ---- the world's steps -----------------------------------------------------------------------------------------
    def grow(self, batches: int = 1) -> Stage:
        """One row a batch; in a PK table row n changes key n % 2, so that later ones replace earlier ones."""
        for _ in range(batches):
            row = {"id": self._rows % 2 if self.pk else self._rows, "v": f"v{self._rows}"}
            (self.world.upsert if self.pk else self.world.append)(TABLE, [row])
            self._rows += 1
        return self

    def ask_resync(self) -> Stage:
        side = self.world.coordinator.board.find(TablePath.parse(TABLE))
        before = side.generation
        self.world.coordinator.operations.resync(TablePath.parse(TABLE), ResyncChoice.RESYNC)
        side.generation = before if self.weak.off("resync_anew") else side.generation
        return self

    def is_resyncing(self) -> bool:
        return self.world.coordinator.committed(TablePath.parse(TABLE)).resync

    def job(self, name: str, round_id: RoundId | None = None, split_bytes: int = 1) -> Actor:
        self.actors.append(Actor(self, name, self.weak, round_id, split_bytes))
        return self.actors[-1]

    def compaction(self) -> CompactionActor:
        self.compactions.append(CompactionActor(self, TABLE))
        return self.compactions[-1]

    def flink(self) -> Flink:
        """A Flink tiering job plans: from the lake's offset to the log's end."""
        return Flink(self)

    def foreign_orphan_removal(self) -> None:
        """`remove_orphan_files` of another engine: every file of the table that no snapshot references goes."""
        upkeep = self.lake.open_maintenance(self._info)
        upkeep.delete(sorted({f.path for f in upkeep.list_files()} - upkeep.references()))

    def orphans(self, *, sweep: bool = False) -> Removal:
        self.removals.append(Removal(self, Weak(self.weak.flags & OF_REMOVAL), sweep=sweep))
        return self.removals[-1]

    def lease_expires(self) -> None:
        assert isinstance(self.clock, ManualClock)
        self.clock.advance(LEASE_S)
        self.world.coordinator.schedule.tick()

    @property
    def foreign(self) -> IcebergForeignEngine:
        return IcebergForeignEngine(self.lake.connection.catalog, TablePath.parse(TABLE))

    def roll_back(self, number: int) -> None:
        """Main back to the n-th snapshot."""
        engine = self.foreign
        engine.roll_back(SnapshotId(str(engine.load().metadata.snapshots[number].snapshot_id)))

    def lose_database(self) -> None:
        self.world.close()
        for path in (self.folder / "server").glob("coordinator.db*"):
            path.unlink()
        self.world._open()
        self.world.coordinator.lakes.read_unseen()

    def committed(self) -> int:
        return sum(self.world.coordinator.committed(TablePath.parse(TABLE)).offsets.values())

    def waits(self) -> bool:
        status = self.world.coordinator.views.table(TablePath.parse(TABLE))
        return status.waiting_rows > 0

    # ---- jobs' door ------------------------------------------------------------------------------------------------
    def hand_out(self, job: JobName, instance: InstanceId) -> HandedOut:
        path = TablePath.parse(TABLE)
        self.world.coordinator.ask_now(path)
        self.world.coordinator.heartbeat(HeartbeatRequest(job=job, instance=instance, slots=1, room=0))
        assert isinstance(self.clock, ManualClock)
        self.clock.advance(0.1)
        self.world.coordinator.schedule.tick()
        answer = self.world.coordinator.heartbeat(HeartbeatRequest(job=job, instance=instance, slots=1, room=1))
        assert answer.tables, f"{job} gets no table: {self.world.coordinator.views.table(path)}"
        return answer.tables[0]

    def hear(self, actor: Actor) -> None:
        end = actor.end
        finished = (end,) if isinstance(end, TableFinished) else ()
        failed = (end,) if isinstance(end, TableFailed) else ()
        request = HeartbeatRequest(job=actor.job, instance=actor.instance, slots=1, finished=finished, failed=failed)
        self.world.coordinator.heartbeat(request)

    # ---- the end ---------------------------------------------------------------------------------------------------
    def violations(self, *, recover: bool = True) -> list[str]:
        """Everybody goes on to the end; then a fresh job must be able to bring the lake up to date, and verify must
        hold.
        """
        for actor in self.actors:
            if not actor.is_over:
                actor.finish()
        for removal in self.removals:
            removal.finish()
        for compaction in self.compactions:
            compaction.commit()
        found = [*self.told, *self._beliefs(), *self._verify()]
        if recover and not found:
            self._recover()
            found += self._verify()
            ends = sum(
                v.end for v in self.world.store.bounds(self.world.store.load_table(TablePath.parse(TABLE))).values()
            )
            found += [] if self.committed() == ends else [f"the lake stands at {self.committed()}, the log at {ends}"]
        return found

    def _recover(self) -> None:
        self.lease_expires()
        if self.waits():
            self.actors.append(Actor(self, "fresh", Weak(self.weak.flags & {"tag", "broken_chain"})))
            self.actors[-1].finish()
        with suppress(LakewardError):
            removal = Removal(self, Weak(frozenset()), sweep=True)
            removal.finish()

    def _beliefs(self) -> list[str]:
        """A round that is in the lake must not have been told that it is not."""
        landed = {s.round_id for s in self.lake.open_reader(self._info).snapshots()}
        known = [a for a in self.actors if a.took_effect or a.round_id in landed or self._knows(a.round_id)]
        return [f"round of {a.job} is in the lake and was told it is not: {a.end}" for a in known if a.was_told_lost]

    def _knows(self, round_id: RoundId) -> bool:
        return self.world.coordinator.knows_round(self._info.table_id, round_id)

    @property
    def _info(self) -> Any:
        return self.world.store.load_table(TablePath.parse(TABLE))

    def _verify(self) -> list[str]:
        certificate = verify_table(
            self.world.plugin, TablePath.parse(TABLE), deep=True, clock=self.clock, open_storage=lambda _plan: self.lake
        )
        return [*(f"{f.kind}: {f.words}" for f in certificate.all_findings), *self._gone()]

    def _gone(self) -> list[str]:
        try:
            used = self.lake.open_maintenance(self._info).references()
        except LakewardError as error:
            return [f"a referenced file is gone: {error}"]
        return [f"{p} is referenced and gone" for p in used if not Path(p.removeprefix("file://")).exists()]

    def close(self) -> None:
        self.world.close()
        if isinstance(self.lake, IcebergLakeStorage):
            self.lake.connection.close()


def _start_of(split: str) -> int:
    """`log 0 [3, 4)` -> 3."""
    return int(split.partition("[")[2].partition(",")[0])
