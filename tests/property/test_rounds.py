# SPDX-License-Identifier: Apache-2.0
"""The round protocol on the memory lake under random schedules: two jobs, zombies, lost answers, kills, other engines,
upkeep.

The same world as the protocol's model checker searches, on the real committer, reader, fold and orphan removal.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hypothesis import event, given, settings
from hypothesis import strategies as st

from lakeward.errors import CommitConflict, CommitUnknown
from lakeward.lake.memory.plugin import MemoryLakeStorage
from lakeward.lake.memory.table import MemoryLake
from lakeward.lake.orphans import OrphanOptions, OrphanRemoval
from lakeward.model import (
    Bucket,
    Column,
    Intent,
    LakeBase,
    OffsetMap,
    RoundId,
    Schema,
    TableDescriptor,
    TableInfo,
    TablePath,
    new_table_id,
    parse_type,
)
from lakeward.spi import Committable
from lakeward_testing import Faults, ManualClock
from lakeward_testing.intents import MemoryIntents
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.removal import intent_of
from lakeward_testing.scripted_log import ScriptedLog
from tests.kit.memoryforeign import MemoryForeignEngine

BUCKETS = (Bucket("", 0), Bucket("", 1))
GRACE_S = 60
LOST = (None, None, "lake.before-commit", "lake.after-commit")
ACTIONS = {"produce": 4, "step": 12, "kill": 1, "lose_lease": 2, "remove_orphans": 3, "expire": 1, "other_engine": 2}
"""What may happen next, and how often beside the rest."""


@dataclass
class Job:
    """A round in work. Phases: planned, written, resolved, checked, landed."""

    round: LakeRound
    phase: str = "planned"
    request: Committable | None = None


class World:
    """One table, two job slots, a lease that may go at any moment, and everybody else who touches the lake."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.lake = MemoryLakeStorage(MemoryLake(self.clock))
        schema = Schema(
            columns=(Column(name="id", type=parse_type("BIGINT NOT NULL")), Column(name="v", type=parse_type("BIGINT")))
        )
        descriptor = TableDescriptor(schema=schema, primary_key=("id",), bucket_count=2)
        table = TableInfo(path=TablePath("db", "t"), table_id=new_table_id(), descriptor=descriptor)
        self.lake.catalog().create(table)
        self.log = ScriptedLog(table)
        self.reader = self.lake.open_reader(table)
        self.upkeep = self.lake.open_maintenance(table)
        self.foreign = MemoryForeignEngine(self.lake.lake, table.path)
        self.intents = MemoryIntents()
        self.jobs: dict[int, Job] = {}
        self.lease: RoundId | None = None
        self.committed = OffsetMap()
        self.ledger: set[str] = set()
        self.landed: set[str] = set()
        self.gave_up: set[str] = set()
        self.lake_offsets = OffsetMap()

    # ---- what happens ------------------------------------------------------------------------------------------------
    def produce(self, chance: random.Random) -> None:
        bucket = chance.choice(BUCKETS)
        for _ in range(chance.randint(1, 5)):
            row = {"id": chance.randrange(5), "v": chance.randrange(1_000_000)}
            if chance.random() < 0.3:
                self.log.delete(bucket, row)
            else:
                self.log.upsert(bucket, row)

    def step(self, chance: random.Random) -> None:
        """The next step of a job, whatever it is; a job that is not stepped for a while is a zombie."""
        slot = chance.randrange(2)
        if slot not in self.jobs:
            self._plan(slot)
            return
        match self.jobs[slot].phase:
            case "planned":
                self._write(slot, chance)
            case "written":
                self._resolve(slot)
            case "resolved":
                self._check_lease(slot)
            case "checked":
                self._commit(slot, chance.choice(LOST))
            case "landed":
                self._finish(slot)

    def kill(self, chance: random.Random) -> None:
        self.jobs.pop(chance.randrange(2), None)

    def lose_lease(self, chance: random.Random) -> None:
        self.lease = None

    def remove_orphans(self, chance: random.Random) -> None:
        self.clock.advance(chance.choice((1, GRACE_S + 1)))
        removal, leased = self._removal(), self.lease is not None
        report = removal.sweep() if chance.random() < 0.5 else removal.by_intents(self.intents)
        assert not (report.fenced and leased), "fenced under a lease"
        event(f"orphans removed: {report.files > 0}, fenced: {report.fenced}")

    def expire(self, chance: random.Random) -> None:
        self.upkeep.expire([s.snapshot_id for s in self.reader.snapshots()])

    def other_engine(self, chance: random.Random) -> None:
        if self.lake.lake.table(self.log.table.path).head is not None:
            chance.choice((self.foreign.touch, self.foreign.compact, self.foreign.expire))()

    # ---- a job's steps -----------------------------------------------------------------------------------------------
    def _plan(self, slot: int) -> None:
        if self.lease is not None:
            return
        made = LakeRound.plan(self.lake, self.log)
        self.adopt(made.base)
        if made.base.offsets == self.log.ends():
            return
        self.intents.record(self._intent(made))
        self.lease = made.round_id
        self.jobs[slot] = Job(made)

    def _write(self, slot: int, chance: random.Random) -> None:
        """Each bucket's range in one or two sub-splits, the last one perhaps short of the log's end."""
        job = self.jobs[slot]
        for bucket in BUCKETS:
            for _ in range(chance.randint(0, 2)):
                stop = min(self.log.end(bucket), job.round.start(bucket) + chance.randint(1, 12))
                if stop > job.round.start(bucket):
                    job.round.write(bucket, stop)
        if job.round.stops:
            job.phase = "written"
        else:
            self._give_up(slot)

    def _resolve(self, slot: int) -> None:
        job, base = self.jobs[slot], self.reader.load_base()
        if base.token != job.round.base.token:
            self._give_up(slot)
            return
        job.request, job.phase = job.round.prepare(base), "resolved"

    def _check_lease(self, slot: int) -> None:
        if self.lease == self.jobs[slot].round.round_id:
            self.jobs[slot].phase = "checked"
        else:
            self._give_up(slot)

    def _commit(self, slot: int, lost: str | None) -> None:
        job = self.jobs[slot]
        with Faults() as faults:
            if lost:
                faults.arm(lost)
            try:
                self._send(job)
            except (CommitConflict, CommitUnknown) as error:
                event(type(error).__name__)
                self._look_for_it(slot, isinstance(error, CommitConflict))
            else:
                event("committed")
                job.phase = "landed"

    def _send(self, job: Job) -> None:
        try:
            job.round.commit(job.request)
        finally:
            if any(x.round_id == job.round.round_id for x in self.reader.snapshots()):
                self.landed.add(job.round.round_id)

    def _finish(self, slot: int) -> None:
        job = self.jobs.pop(slot)
        self.committed = self.committed.raised(job.round.stops)
        self.ledger.add(job.round.round_id)
        self._let_go(job)

    # ---- what must hold ----------------------------------------------------------------------------------------------
    def check(self) -> None:
        assert self.upkeep.references() <= set(self.lake.lake.table(self.log.table.path).files), (
            "a referenced file is gone"
        )
        base = self.reader.load_base()
        assert not self.lake_offsets.regressions(base.offsets), "a committed offset went back"
        self.lake_offsets = base.offsets
        assert lake_rows(self.lake, self.log.table) == self.log.expected(base.offsets)
        assert base.offsets.raised(self.committed) == base.offsets, "the coordinator is ahead of the lake"
        assert not self.landed & self.gave_up, "a round is in the lake and its job was told it is not"

    def check_recovery(self) -> None:
        """Whatever happened, a fresh job completes a round, every snapshot reads right, and every orphan goes."""
        self.lease = None
        made = LakeRound.plan(self.lake, self.log)
        if made.base.offsets != self.log.ends():
            made.run()
        assert lake_rows(self.lake, self.log.table) == self.log.expected(self.log.ends())
        for shown in self.reader.snapshots():
            full = self.reader.load_snapshot(shown.snapshot_id)
            if full is not None and full.offsets is not None:
                assert lake_rows(self.lake, self.log.table, shown.snapshot_id) == self.log.expected(full.offsets)
        self.clock.advance(GRACE_S + 1)
        self._removal().sweep()
        assert {f.path for f in self.upkeep.list_files()} <= self.upkeep.references()

    # ---- parts -------------------------------------------------------------------------------------------------------
    def adopt(self, base: LakeBase) -> None:
        self.committed = self.committed.raised(base.offsets)
        if base.token:
            self.ledger.add(base.token)

    def _look_for_it(self, slot: int, is_conflict: bool) -> None:
        """A conflict and an unknown outcome first look for their own round id, in the lake and in the ledger."""
        job = self.jobs[slot]
        if job.round.committer.find(job.round.round_id) is not None or job.round.round_id in self.ledger:
            job.phase = "landed"
        else:
            job.phase = "written" if is_conflict else "checked"

    def _give_up(self, slot: int) -> None:
        job = self.jobs.pop(slot)
        self.gave_up.add(job.round.round_id)
        self.intents.abandon(job.round.round_id)
        self._let_go(job)

    def _let_go(self, job: Job) -> None:
        if self.lease == job.round.round_id:
            self.lease = None

    def _intent(self, made: LakeRound) -> Intent:
        return intent_of(made, self.clock.now_ms())

    def _removal(self) -> OrphanRemoval:
        options = OrphanOptions(grace_ms=GRACE_S * 1000, max_age_ms=10 * GRACE_S * 1000)
        return OrphanRemoval(
            self.lake, self.log.table, clock=self.clock, options=options, hold=self._hold, adopt=self.adopt
        )

    @contextmanager
    def _hold(self) -> Iterator[bool]:
        yield self.lease is None


SCHEDULES = st.lists(
    st.tuples(
        st.sampled_from([name for name, weight in ACTIONS.items() for _ in range(weight)]), st.integers(0, 2**32)
    ),
    min_size=30,
    max_size=90,
)


@settings(max_examples=settings().max_examples // 2)
@given(SCHEDULES)
def test_no_schedule_breaks_the_round_protocol(schedule: list[tuple[str, int]]) -> None:
    world = World()
    for name, seed in schedule:
        getattr(world, name)(random.Random(seed))
        world.check()
    world.check_recovery()
