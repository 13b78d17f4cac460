# SPDX-License-Identifier: Apache-2.0
"""One table in several lakes of different formats beside a dict: sides that fail, stand, come, go and are resynced."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.errors import TableBusy
from lakeward.model import DEFAULT_SIDE, SideName, SystemClock, TablePath
from lakeward.protocol.heartbeat import TableFailed
from lakeward.protocol.operate import ResyncChoice
from lakeward.protocol.tables import AlterTable
from lakeward.spi import load_lake
from lakeward.tiering.work.runner import RoundEnd
from lakeward_testing.clock import ManualClock
from lakeward_testing.faults import Faults
from tests.kit.inprocess import InProcessLakeward
from tests.property.union_program import delta_lake, iceberg_lake, memory_lake, paimon_lake

PK, LOG = "db.state", "db.events"
ICE, OTHER = SideName("ice"), SideName("other")
SIDES = (DEFAULT_SIDE, ICE, OTHER)
WAITS, WAIT_S = 5, 400

STEPS = ("split.before-read", "split.batch", "split.written", "round.before-lake-commit", "round.after-lake-commit")
"""Where one side fails while the others, that read the log with it, go on."""

side = st.sampled_from(SIDES)
step = st.one_of(
    st.tuples(st.just("upsert"), st.lists(st.tuples(st.integers(0, 5), st.text("xyz", max_size=2)), min_size=1)),
    st.tuples(st.just("delete"), st.lists(st.integers(0, 5), min_size=1, max_size=3)),
    st.tuples(st.just("append"), st.lists(st.text("xyz", max_size=2), min_size=1, max_size=4)),
    st.tuples(st.sampled_from(("tier", "crash", "pause", "resume", "add", "remove", "resync")), side),
    st.tuples(st.sampled_from(("together", "restart")), st.none()),
    st.tuples(st.just("fails_beside"), st.tuples(side, st.sampled_from(STEPS), st.integers(1, 2))),
)


class SidesProgram:
    """What every side must show: the dict, and the list, whatever happens to the others."""

    def __init__(self, folder: Path, other: str) -> None:
        (folder / "other").mkdir()
        (folder / "ice").mkdir()
        made = {"memory": memory_lake, "paimon": paimon_lake, "delta": delta_lake}[other]
        self.clock = ManualClock(SystemClock().now_ms())
        named = {"ice": iceberg_lake(folder / "ice"), "other": made(folder / "other")}
        lake = load_lake("memory", {"name": str(folder)})
        self.world = InProcessLakeward(folder, lake, self.clock, named=named, quarantine_after=1_000)
        self.state: dict[int, str] = {}
        self.events: Counter[str] = Counter()
        self.present = list(SIDES)
        self._rounds: dict[str, SideName] = {}
        lakes = {"table.datalake.lakes": ", ".join(map(str, SIDES))}
        self.world.create(PK, "id bigint not null, v string", primary_key="id", buckets=2, **lakes)
        self.world.create(LOG, "v string", buckets=2, **lakes)
        self.upsert([(0, "x")])
        self.append(["x"])

    def run(self, steps: list[tuple[str, Any]]) -> None:
        for name, argument in steps:
            getattr(self, name)(*(() if argument is None else (argument,)))
            self.check()
        for each in SIDES:
            self.add(each)
            self.resume(each)
            self.tier(each)
            self.check(lake_alone=each)

    def check(self, lake_alone: SideName | None = None) -> None:
        """Union reads by each side and by none named; at the end what each lake holds by itself."""
        reads: list[dict[str, Any]] = [{}, *({"lake": str(s)} for s in self.present)]
        if lake_alone is not None:
            reads = [{"lake": str(lake_alone), "mode": "lake"}]
        for options in reads:
            rows = self.world.read(PK, **options).to_table().to_pylist()
            assert {r["id"]: r["v"] for r in rows} == self.state, options
            assert len(rows) == len(self.state)
            events = self.world.read(LOG, **options).to_table().to_pylist()
            assert Counter(r["v"] for r in events) == self.events, options

    # ---- steps ----
    def upsert(self, rows: list[tuple[int, str]]) -> None:
        self.world.upsert(PK, [{"id": i, "v": v} for i, v in rows])
        self.state |= dict(rows)

    def delete(self, keys: list[int]) -> None:
        self.world.delete(PK, [{"id": i} for i in keys])
        for gone in keys:
            self.state.pop(gone, None)

    def append(self, values: list[str]) -> None:
        self.world.append(LOG, [{"v": v} for v in values])
        self.events.update(values)

    def tier(self, name: SideName) -> None:
        for path in (PK, LOG) if name in self.present else ():
            for _ in range(WAITS):
                try:
                    self.world.tier(path, name)
                    asked = self.world.coordinator.ask_now(TablePath.parse(path), name)
                    if self.world.coordinator.check_asked(asked) is not None:
                        break
                except TableBusy:  # it stands
                    break
                self.clock.advance(WAIT_S)
            else:
                raise AssertionError(f"no round of {path} in {name} took place")

    def together(self) -> None:
        """Every side that goes, from one read of the log."""
        for path in (PK, LOG):
            self._run_together(path)

    def fails_beside(self, how: tuple[SideName, str, int]) -> None:
        """What befalls one side's round, in the middle of tasks that it shares or after them, befalls no other."""
        name, point, hit = how
        for path in (PK, LOG):
            with Faults() as faults:
                hurt = faults.arm(point, times=None, when=lambda facts: self._is_of(facts, name), hit=hit)
                ends = self._run_together(path)
            failed = {end.side for end in ends if isinstance(end, TableFailed)}
            assert failed <= {name}, failed
            assert not hurt.acted or failed, f"{point} of {name} went by"

    def _is_of(self, facts: Mapping[str, Any], name: SideName) -> bool:
        """Steps of splits name their side; those of rounds do by their round."""
        return facts["side"] == str(name) if "side" in facts else self._rounds.get(facts["round_id"]) == name

    def _run_together(self, path: str) -> list[RoundEnd]:
        for name in self.present:
            with self._may_stand():
                self.world.coordinator.ask_now(TablePath.parse(path), name)
        handed = self.world.take_all(path)
        works = self.world.works(handed)
        self._rounds = {work.round_id: work.handed.side for work in works}
        return self.world.run_works(works)

    def crash(self, name: SideName) -> None:
        """The job dies between this lake's commit and the coordinator's."""
        with Faults() as faults, self._may_stand():
            faults.arm("round.before-coordinator-commit", times=None)
            for path in (PK, LOG) if name in self.present else ():
                self.world.coordinator.ask_now(TablePath.parse(path), name)
                handed = self.world.take(path, side=name)
                if handed is not None:
                    self.world.run(handed)

    @contextmanager
    def _may_stand(self) -> Iterator[None]:
        try:
            yield
        except TableBusy:
            return

    def pause(self, name: SideName) -> None:
        for path in (PK, LOG) if name in self.present else ():
            self.world.coordinator.operations.pause(TablePath.parse(path), name)

    def resume(self, name: SideName) -> None:
        for path in (PK, LOG) if name in self.present else ():
            self.world.coordinator.operations.resume(TablePath.parse(path), name)

    def add(self, name: SideName) -> None:
        if name not in self.present:
            self.present.append(name)
            self._alter()

    def remove(self, name: SideName) -> None:
        if name in self.present and len(self.present) > 1:
            self.present.remove(name)
            self._alter()

    def _alter(self) -> None:
        lakes = {"table.datalake.lakes": ", ".join(map(str, self.present))}
        for path in (PK, LOG):
            self.world.federation.alter(TablePath.parse(path), AlterTable(properties=lakes))

    def resync(self, name: SideName) -> None:
        if name in self.present:
            self.world.coordinator.operations.resync(TablePath.parse(PK), ResyncChoice.RESYNC, name)

    def restart(self) -> None:
        self.world.restart()
        self.world.coordinator.lakes.read_unseen()


def play(steps: list[tuple[str, Any]], other: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix="sides-"))
    program = SidesProgram(folder, other)
    try:
        program.run(steps)
    finally:
        program.world.close()
        shutil.rmtree(folder)


@settings(max_examples=3, deadline=None)
@given(st.lists(step, max_size=8))
def test_every_side_shows_the_same_rows_whatever_happens_to_the_others(steps: list[tuple[str, Any]]) -> None:
    play(steps, "delta")


@pytest.mark.parametrize("point", STEPS)
def test_a_side_that_fails_beside_others_fails_alone(point: str) -> None:
    more: list[tuple[str, Any]] = [("upsert", [(1, "y"), (0, "z")]), ("append", ["y", "z"])]
    play([("together", None), *more, ("fails_beside", (ICE, point, 1)), *more], "delta")


@pytest.mark.soak
@pytest.mark.parametrize("other", ["memory", "paimon", "delta"])
def test_sides_of_each_format_at_length(other: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(st.lists(step, min_size=6, max_size=25))
    def run(steps: list[tuple[str, Any]]) -> None:
        play(steps, other)

    run()
