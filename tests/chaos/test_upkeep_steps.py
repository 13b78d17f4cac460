# SPDX-License-Identifier: Apache-2.0
"""Each step of orphan removal and of expiry x kill, pause, lost answer, on real Iceberg tables: a seeded sample here,
all in the soak.

And the list of all fault points: each is hit by a test that this file names, so that a new one cannot be forgotten."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

import lakeward
import lakeward_testing
from lakeward.errors import FaultInjected, LakewardError
from lakeward.lake.orphans import OrphanRemoval
from lakeward.model import SystemClock, TablePath
from lakeward.protocol.heartbeat import TableFailed
from lakeward.spi import load_lake
from lakeward_testing.chaos.plan import ACTIONS, COMPACT_STEPS, JOB_STEPS, SERVER_STEPS
from lakeward_testing.clock import ManualClock
from lakeward_testing.faults import Fault, FaultAction, Faults
from lakeward_testing.waiting import wait_until
from tests.chaos.stage import LONG_AGO, TABLE, Stage
from tests.kit.inprocess import InProcessLakeward

SEED = 5
ORPHANS = (
    "orphans.listed",
    "orphans.before-fence",
    "orphans.fenced",
    "orphans.before-delete",
    "lake.before-delete",
    "orphans.deleted",
)
EXPIRY = ("lake.before-expire", "lake.after-expire", "lake.before-delete")
CASES = [
    *product(("orphans",), ORPHANS, ACTIONS, (False, True)),
    *product(("expire",), EXPIRY, ACTIONS, (False, True)),
]


def sampled() -> list[object]:
    """Every step once, with an action and a table drawn by the seed; the others are marked as soak."""
    chance = random.Random(SEED)
    steps = [*product(("orphans",), ORPHANS), *product(("expire",), EXPIRY)]
    chosen = {chance.choice([c for c in CASES if c[:2] == step]) for step in steps}
    marks = {True: [], False: [pytest.mark.soak]}
    return [
        pytest.param(*c, id=f"{c[2]} at {c[1]} of {c[0]}, {'pk' if c[3] else 'log'}", marks=marks[c in chosen])
        for c in CASES
    ]


class Upkeep:
    """One piece of upkeep on a thread of its own, as the server has it."""

    def __init__(self, stage: Stage, kind: str) -> None:
        upkeep = stage.world.coordinator.upkeep
        record = stage.world.coordinator.board.find(TablePath.parse(TABLE))
        removal = OrphanRemoval(
            stage.lake,
            record.info,
            clock=SystemClock(),
            options=LONG_AGO,
            hold=lambda: upkeep.hold(record),
            adopt=lambda base: upkeep._adopt(record, base),
        )
        works: dict[str, Callable[[], object]] = {
            "orphans": lambda: removal.by_intents(stage.world.coordinator.intents),
            "expire": lambda: upkeep.expire(record),
        }
        self._work = works[kind]
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except (LakewardError, SystemExit):
            return  # the server logs it and comes again, or is gone

    def end(self) -> None:
        self.thread.join(120)
        assert not self.thread.is_alive()


def arm(faults: Faults, point: str, action: str) -> Fault:
    if action == "pause":
        return faults.arm(point, FaultAction.PAUSE)
    # SystemExit ends the thread at that step, past every handler: what a kill leaves behind.
    return faults.arm(point, FaultAction.RAISE, error=SystemExit if action == "kill" else None)


@pytest.mark.parametrize(("kind", "point", "action", "pk"), sampled())
def test_upkeep_hurt_at(tmp_path: Path, faults: Faults, kind: str, point: str, action: str, pk: bool) -> None:
    stage = Stage(tmp_path, faults, pk=pk)
    try:
        stage.grow(2)
        stage.job("one").finish()
        stage.grow(3)
        stage.job("leaves files behind").plan().write(6 if pk else 4).finish()
        stage.lease_expires()
        if kind == "expire":
            stage.job("two").finish()
            expire_all(stage)
        fault = arm(faults, point, action)
        hurt = Upkeep(stage, kind)
        if action == "pause":
            fault.wait_reached()
            stage.grow(1)
            Upkeep(stage, kind).end()
            fault.release()
        hurt.end()
        wait_until(lambda: fault.acted == 1, what=point)
        Upkeep(stage, kind).end()
        assert stage.violations() == []
        upkeep = stage.lake.open_maintenance(stage._info)
        assert not {f.path for f in upkeep.list_files()} - upkeep.references()
    finally:
        stage.close()


def expire_all(stage: Stage) -> None:
    with stage.foreign.load().transaction() as change:
        change.set_properties({"history.expire.max-snapshot-age-ms": "0", "history.expire.min-snapshots-to-keep": "1"})
    assert isinstance(stage.clock, ManualClock)
    stage.clock.advance(10**9)


@pytest.fixture
def memory_world(tmp_path: Path) -> Iterator[InProcessLakeward]:
    world = InProcessLakeward(tmp_path, load_lake("memory", {"name": tmp_path.name}))
    world.create("db.t", "id bigint not null, v string", primary_key="id")
    world.upsert("db.t", [{"id": i, "v": "a"} for i in range(3)])
    yield world
    world.close()


def lake_ids(world: InProcessLakeward) -> list[int]:
    return sorted(world.read("db.t", mode="lake").to_table().column("id").to_pylist())


@pytest.mark.parametrize("point", ["lake.wrote-batch", "lake.before-complete"])
def test_the_memory_lake_hurt_at(memory_world: InProcessLakeward, faults: Faults, point: str) -> None:
    fault = faults.arm(point)
    (end,) = memory_world.tier("db.t")
    assert fault.acted == 1
    assert isinstance(end, TableFailed)
    assert isinstance(memory_world.clock, ManualClock)
    memory_world.clock.advance(3600)
    memory_world.tier("db.t")
    assert lake_ids(memory_world) == [0, 1, 2]


def test_the_memory_lakes_expiry_hurt_between_metadata_and_files(
    memory_world: InProcessLakeward, faults: Faults
) -> None:
    memory_world.tier("db.t")
    memory_world.upsert("db.t", [{"id": 7, "v": "b"}])
    memory_world.tier("db.t")
    info = memory_world.store.load_table(TablePath.parse("db.t"))
    old = memory_world.lake.open_reader(info).snapshots()[0].snapshot_id
    faults.arm("lake.expired-metadata")
    with pytest.raises(FaultInjected):
        memory_world.lake.open_maintenance(info).expire([old])
    assert lake_ids(memory_world) == [0, 1, 2, 7]


def test_a_key_store_that_does_not_open_keeps_its_rows(memory_world: InProcessLakeward, faults: Faults) -> None:
    memory_world.restart()
    fault = faults.arm("kv.open")
    with pytest.raises(LakewardError):
        memory_world.upsert("db.t", [{"id": 7, "v": "b"}])
    assert fault.acted == 1
    memory_world.restart()
    assert sorted(memory_world.read("db.t").to_table().column("id").to_pylist()) == [0, 1, 2]


def test_every_fault_point_is_hit_by_some_test() -> None:
    """By the lab and the tests of steps, or by name in a test of its own."""
    package, tests = Path(lakeward.__file__).parent, Path(__file__).parents[1]
    texts = {path: path.read_text() for path in package.rglob("*.py")}
    found = {name for text in texts.values() for name in re.findall(r'fault_point\(\s*"([a-z.-]+)"', text)}
    assert len(found) > 50
    named = "".join(
        [
            *(p.read_text() for p in tests.rglob("*.py")),
            *(p.read_text() for p in Path(lakeward_testing.__file__).parent.rglob("*.py")),
        ]
    )
    assert not {name for name in found if f'"{name}' not in named}, (
        "arm them in the lab (plan.py), or hit them in a test"
    )
    assert not {*JOB_STEPS, *COMPACT_STEPS, *SERVER_STEPS} - found, "the lab arms points that are gone"
