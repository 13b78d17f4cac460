# SPDX-License-Identifier: Apache-2.0
"""Cuts beside dicts: tables that are written to, tiered, restarted, compacted and expired by others show at a cut what
they had then; and writers that keep a rule across two tables, killed at random, never break it in a cut."""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.lake.lance.storage import LanceLakeStorage
from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward.model import DEFAULT_SIDE, TIER, CutState, SideName, SystemClock, TablePath
from lakeward.model.side import COMPACT
from lakeward.protocol.heartbeat import HeartbeatRequest
from lakeward.spi import LakeStorage, load_lake
from lakeward_testing.clock import ManualClock
from lakeward_testing.faults import Faults
from lakeward_testing.icebergforeign import IcebergForeignEngine
from lakeward_testing.lanceforeign import LanceForeignEngine
from lakeward_testing.paimonforeign import PaimonForeignEngine
from tests.kit.inprocess import JOB, InProcessLakeward
from tests.property.union_program import iceberg_lake, lance_lake, memory_lake, paimon_lake

ORDERS, PAYMENTS, EVENTS = "shop.orders", "shop.payments", "shop.events"
TABLES = (ORDERS, PAYMENTS, EVENTS)
ICE = SideName("ice")
ROUNDS, WAIT_S = 60, 400

side = st.sampled_from((DEFAULT_SIDE, ICE))
keys = st.lists(st.integers(0, 5), min_size=1, max_size=4)
step = st.one_of(
    st.tuples(st.just("pay"), keys),
    st.tuples(st.just("order"), keys),
    st.tuples(st.just("cancel"), keys),
    st.tuples(st.just("cut"), st.sampled_from((TABLES, (ORDERS, PAYMENTS), (EVENTS,)))),
    st.tuples(st.just("tier"), st.tuples(st.sampled_from(TABLES), side)),
    st.tuples(st.sampled_from(("crash", "restart", "settle", "compact", "drop", "expire")), st.none()),
)


class CutsProgram:
    """`expected` holds what each table had when the cut was made."""

    def __init__(self, folder: Path, make: Callable[[Path], LakeStorage]) -> None:
        (folder / "ice").mkdir()
        self.clock = ManualClock(SystemClock().now_ms())
        lake, named = make(folder), {"ice": iceberg_lake(folder / "ice")}
        self.world = InProcessLakeward(folder, lake, self.clock, named=named, quarantine_after=1_000)
        lakes = {"table.datalake.lakes": "default, ice"}
        for path in (ORDERS, PAYMENTS):
            self.world.create(path, "id bigint not null, v bigint", primary_key="id", buckets=2, **lakes)
        self.world.create(EVENTS, "id bigint, v bigint", buckets=2, **lakes)
        self.rows: dict[str, dict[int, int]] = {path: {} for path in TABLES}
        self.expected: dict[str, dict[str, dict[int, int]]] = {}
        self.turn = 0

    def run(self, steps: list[tuple[str, Any]]) -> None:
        for name, argument in steps:
            self.turn += 1
            getattr(self, name)(*(() if argument is None else (argument,) if isinstance(argument, list) else argument))
            self.check()
        for path in TABLES:
            for each in (DEFAULT_SIDE, ICE):
                self.tier(path, each)
        self.settle()
        for name in self.expected:
            assert self.world.coordinator.load_cut(name).state is CutState.READY, name
        self.check()

    def check(self) -> None:
        for name, tables in self.expected.items():
            status = self.world.coordinator.load_cut(name)
            assert status.state is not CutState.LOST, status
            if status.state is CutState.READY:
                for path, rows in tables.items():
                    for lake in ("default", "ice"):
                        read = self.world.read(path, cut=name, lake=lake).to_table().to_pylist()
                        assert {r["id"]: r["v"] for r in read} == rows, (name, path, lake)
                        assert len(read) == len(rows)

    # ---- steps ----
    def order(self, ids: list[int]) -> None:
        self.world.upsert(ORDERS, [{"id": i, "v": self.turn} for i in ids])
        self.rows[ORDERS] |= dict.fromkeys(ids, self.turn)

    def pay(self, ids: list[int]) -> None:
        self.order(ids)
        self.world.upsert(PAYMENTS, [{"id": i, "v": self.turn} for i in ids])
        self.rows[PAYMENTS] |= dict.fromkeys(ids, self.turn)
        events = {100 * self.turn + n: i for n, i in enumerate(ids)}
        self.world.append(EVENTS, [{"id": n, "v": i} for n, i in events.items()])
        self.rows[EVENTS] |= events

    def cancel(self, ids: list[int]) -> None:
        for path in (PAYMENTS, ORDERS):
            self.world.delete(path, [{"id": i} for i in ids])
            for gone in ids:
                self.rows[path].pop(gone, None)

    def cut(self, *tables: str) -> None:
        name = f"cut-{self.turn}"
        self.world.coordinator.cuts.create(name, [TablePath.parse(path) for path in tables])
        self.expected[name] = {path: dict(self.rows[path]) for path in tables}

    def tier(self, path: str, name: SideName) -> None:
        """Rounds, of whatever is due, until this side has everything."""
        asked = self.world.coordinator.ask_now(TablePath.parse(path), name)
        for _ in range(ROUNDS):
            if self.world.coordinator.check_asked(asked) is not None:
                return
            if not self._rounds():
                self.clock.advance(WAIT_S)
        raise AssertionError(f"no round of {path} in {name} took place")

    def _rounds(self) -> int:
        self.world.coordinator.schedule.tick()
        me = HeartbeatRequest(job=JOB, instance=self.world.instance, slots=2, room=2, kinds=(TIER, COMPACT))
        handed = self.world.coordinator.heartbeat(me).tables
        for one in handed:
            self.world.run(one)
        return len(handed)

    def crash(self) -> None:
        """A job dies between lake commits and the coordinator's."""
        with Faults() as faults:
            faults.arm("round.before-coordinator-commit", times=None)
            self._rounds()

    def restart(self) -> None:
        self.world.restart()
        self.world.coordinator.lakes.read_unseen()

    def settle(self) -> None:
        self.world.coordinator.upkeep.read_lakes()

    def compact(self) -> None:
        """Where a slot is free for it."""
        self.world.coordinator.operations.maintain_now(TablePath.parse(ORDERS))
        self._rounds()

    def expire(self) -> None:
        """By others, who know of tags alone: a snapshot that a cut waits for would be gone."""
        states = {self.world.coordinator.load_cut(name).state for name in self.expected}
        for path in TABLES if states <= {CutState.READY} else ():
            for lake in (self.world.lake, self.world.named["ice"]):
                expire_as_others(lake, TablePath.parse(path))

    def drop(self) -> None:
        for name in list(self.expected)[:1]:
            self.world.coordinator.cuts.drop(name)
            del self.expected[name]


def expire_as_others(lake: LakeStorage, path: TablePath) -> None:
    if isinstance(lake, IcebergLakeStorage):
        IcebergForeignEngine(lake.connection.catalog, path).expire()
    elif isinstance(lake, PaimonLakeStorage):
        PaimonForeignEngine(lake.connection, path).expire()
    elif isinstance(lake, LanceLakeStorage):
        LanceForeignEngine(lake.table(path)).clean_up()


def run_program(steps: list[tuple[str, Any]], make: Callable[[Path], LakeStorage] = memory_lake) -> None:
    folder = Path(tempfile.mkdtemp(prefix="cuts-"))
    program = CutsProgram(folder, make)
    try:
        program.run(steps)
    finally:
        program.world.close()
        shutil.rmtree(folder)


A = ("tier", (ORDERS, DEFAULT_SIDE))


def test_rounds_stop_at_a_cut_that_was_made_before_the_first_of_them_and_between() -> None:
    """A PK table's first round takes the log up to the cut, not a snapshot of its own moment."""
    run_program(
        [
            ("pay", [0, 1, 2]),
            ("cut", TABLES),
            ("pay", [1, 3]),
            ("cut", (ORDERS, PAYMENTS)),
            ("cancel", [0, 1]),
            ("crash", None),
            A,
            ("restart", None),
            ("cut", (EVENTS,)),
            ("pay", [5]),
            ("compact", None),
            ("drop", None),
        ]
    )


@pytest.mark.soak
@pytest.mark.parametrize("make", [memory_lake, paimon_lake, lance_lake], ids=lambda m: m.__name__)
def test_a_cut_shows_what_tables_had_then(make: Callable[[Path], LakeStorage]) -> None:
    @settings(max_examples=100 if make is memory_lake else 30, deadline=None)
    @given(st.lists(step, max_size=40))
    def run(steps: list[tuple[str, Any]]) -> None:
        run_program(steps, make)

    run()


def test_writers_that_are_killed_at_random_never_break_their_rule_in_a_cut(tmp_path: Path) -> None:
    """Each order is acknowledged before its payment is written: no cut has a payment without its order."""
    world = InProcessLakeward(tmp_path, load_lake("memory", {"name": str(tmp_path)}))
    for path in (PAYMENTS, ORDERS):
        world.create(path, "id bigint not null", primary_key="id", buckets=2)
    stop = threading.Event()

    def write(writer: int) -> None:
        chance, last = random.Random(writer), 0
        for last in range(10_000):
            world.upsert(ORDERS, [{"id": 10_000 * writer + last}])
            if stop.is_set() and chance.random() < 0.5:  # killed between the two
                return
            world.upsert(PAYMENTS, [{"id": 10_000 * writer + last}])
            if stop.is_set():
                return

    writers = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for writer in writers:
        writer.start()
    paths = [TablePath.parse(path) for path in (PAYMENTS, ORDERS)]
    try:
        for number in range(4):
            wanted = world.store.bounds(world.store.load_table(paths[0]), sync=True)
            world.store.wait_for(world.store.load_table(paths[0]), {b: v.end + 3 for b, v in wanted.items()}, 30)
            world.coordinator.cuts.create(f"n{number}", paths)
            if number == 1:
                for path in (PAYMENTS, ORDERS):
                    handed = world.take(path)
                    assert handed is not None
                    world.run(handed)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    for path in (PAYMENTS, ORDERS):
        world.tier(path)
    world.coordinator.upkeep.read_lakes()
    for number in range(4):
        read = {p: world.read(p, cut=f"n{number}").to_table()["id"].to_pylist() for p in (ORDERS, PAYMENTS)}
        assert read[PAYMENTS]
        assert set(read[PAYMENTS]) <= set(read[ORDERS])
    world.close()
