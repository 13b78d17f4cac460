# SPDX-License-Identifier: Apache-2.0
"""Union read against a dict and a list: random programs of writes, rounds, crashes and restarts; equal after every step.

Two partitions that share bucket numbers and offsets are in every program."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.spi.registry import load_lake
from lakeward.testing.faults import Faults
from lakeward.testing.inprocess import InProcessLakeward
from lakeward.tiering.control import RoundControl

PK, LOG = "db.state", "db.events"
PARTITIONS = ("a", "b")

key = st.tuples(st.sampled_from(PARTITIONS), st.integers(0, 5))
value = st.text("xyz", max_size=3)
step = st.one_of(
    st.tuples(st.just("upsert"), st.lists(st.tuples(key, value), min_size=1, max_size=4)),
    st.tuples(st.just("partial"), st.lists(st.tuples(key, st.integers(0, 9)), min_size=1, max_size=2)),
    st.tuples(st.just("delete"), st.lists(key, min_size=1, max_size=3)),
    st.tuples(st.just("append"), st.lists(st.tuples(st.sampled_from(PARTITIONS), value), min_size=1, max_size=4)),
    st.tuples(st.sampled_from(("tier", "crash", "force", "restart", "add column")), st.none()),
)


class Program:
    """The world and what it must show."""

    def __init__(self, folder: Path) -> None:
        self.world = InProcessLakeward(folder, load_lake("memory", {"name": str(folder)}))
        self.state: dict[tuple[str, int], dict[str, Any]] = {}
        self.events: Counter[tuple[Any, ...]] = Counter()
        self.added = 0
        self.world.create(PK, "p string not null, id bigint not null, v string, w int", primary_key="p,id", partition_by="p", buckets=2)
        self.world.create(LOG, "p string not null, v string", partition_by="p", buckets=2)
        self.upsert([((p, 0), "x") for p in PARTITIONS])
        self.append([(p, "x") for p in PARTITIONS])

    def upsert(self, rows: list[tuple[tuple[str, int], str]]) -> None:
        extra = {f"n{i}": i for i in range(self.added)}
        listed: list[dict[str, Any]] = [{"p": p, "id": i, "v": v, "w": 0, **extra} for (p, i), v in rows]
        self.world.upsert(PK, listed)
        self.state |= {(r["p"], r["id"]): r for r in listed}

    def partial(self, rows: list[tuple[tuple[str, int], int]]) -> None:
        self.world.upsert(PK, [{"p": p, "id": i, "w": w} for (p, i), w in rows], ["p", "id", "w"])
        blank = {"v": None, **{f"n{i}": None for i in range(self.added)}}
        for (p, i), w in rows:
            self.state[p, i] = {**blank, **self.state.get((p, i), {}), "p": p, "id": i, "w": w}

    def delete(self, keys: list[tuple[str, int]]) -> None:
        self.world.delete(PK, [{"p": p, "id": i} for p, i in keys])
        for gone in keys:
            self.state.pop(gone, None)

    def append(self, rows: list[tuple[str, str]]) -> None:
        self.world.append(LOG, [{"p": p, "v": v} for p, v in rows])
        self.events.update(rows)

    def add_column(self) -> None:
        if self.added < 2:
            self.world.add_column(PK, f"n{self.added} int")
            self.state = {k: {**row, f"n{self.added}": None} for k, row in self.state.items()}
            self.added += 1

    def tier(self) -> None:
        self.world.tier(PK)
        self.world.tier(LOG)

    def crash(self) -> None:
        """The job dies between lake commit and coordinator commit; a new instance goes on later."""
        self.world.coordinator.ask_now(self.world.store.list_tables()[0].path)
        handed = self.world.take(str(self.world.store.list_tables()[0].path))
        if handed is not None:
            with Faults() as faults:
                faults.arm("round.before-coordinator-commit", times=None)
                self.world.run(handed)

    def force(self) -> None:
        """A round that is told to finish at once: it commits what it has, or nothing."""
        self.world.coordinator.ask_now(self.world.store.list_tables()[-1].path)
        handed = self.world.take(str(self.world.store.list_tables()[-1].path))
        if handed is not None:
            control = RoundControl()
            control.force()
            self.world.run(handed, control)

    def check(self) -> None:
        rows = self.world.read(PK).to_table().to_pylist()
        names = ("p", "id", "v", "w", *(f"n{i}" for i in range(self.added)))
        want = [{n: row.get(n) for n in names} for row in self.state.values()]
        assert sorted(rows, key=repr) == sorted(want, key=repr)
        events = Counter((r["p"], r["v"]) for r in self.world.read(LOG).to_table().to_pylist())
        assert events == self.events


@settings(max_examples=25)
@given(st.lists(step, min_size=1, max_size=12))
def test_a_union_read_equals_the_dict_after_every_step(steps: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = Program(Path(folder))
        try:
            for name, argument in steps:
                run = {
                    "tier": program.tier,
                    "crash": program.crash,
                    "force": program.force,
                    "restart": program.world.restart,
                    "add column": program.add_column,
                }.get(name)
                if run is not None:
                    run()
                else:
                    getattr(program, name)(argument)
                program.check()
            program.tier()
            program.check()
        finally:
            program.world.close()
