# SPDX-License-Identifier: Apache-2.0
"""The changelog from any offset beside the list of changes of a dict: through rounds, crashes, restarts, expiry and
compaction."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.hot.embedded.options import StoreOptions
from lakeward.model import DEFAULT_SIDE, Bucket, Content, OffsetMap, SideName, SystemClock, TablePath
from lakeward.spi import LakeStorage
from lakeward_testing.clock import ManualClock
from lakeward_testing.faults import Faults
from tests.kit.inprocess import InProcessLakeward
from tests.property.union_program import delta_lake, iceberg_lake, memory_lake, paimon_lake
from tests.unit.read.test_union import cut_log

PATH = "db.t"
CHANGES = SideName("default", Content.CHANGELOG)
PAD = "x" * 300
"""Rows fill segments, so that retention has something to take."""

Change = tuple[str, int, str]
side = st.sampled_from((DEFAULT_SIDE, CHANGES, CHANGES))
step = st.one_of(
    st.tuples(st.just("upsert"), st.lists(st.tuples(st.integers(0, 5), st.sampled_from("xyz")), min_size=1)),
    st.tuples(st.just("delete"), st.lists(st.integers(0, 5), min_size=1, max_size=3)),
    st.tuples(st.sampled_from(("tier", "tier", "crash")), side),
    st.tuples(st.sampled_from(("restart", "cut", "compact", "expire")), st.none()),
)


class ChangesProgram:
    """What the changelog must show, bucket by bucket: all changes, whatever became of the log."""

    def __init__(self, folder: Path, lake: LakeStorage) -> None:
        self.clock = ManualClock(SystemClock().now_ms())
        options = StoreOptions.with_settings({"log.segment.file-size": "4kb", "kv.snapshot.interval": "1 s"})
        self.world = InProcessLakeward(folder, lake, self.clock, options, quarantine_after=1_000)
        changelog: dict[str, Any] = {"table.datalake.changelog": "default"}
        self.world.create(PATH, "id bigint not null, v string", primary_key="id", buckets=2, **changelog)
        self.state: dict[int, str] = {}
        self.expected: list[Change] = []

    def run(self, steps: list[tuple[str, Any]], share: float) -> None:
        self.upsert([(key, "x") for key in range(6)])
        for name, argument in steps:
            getattr(self, name)(*(() if argument is None else (argument,)))
            self.check(share)
        for each in (CHANGES, DEFAULT_SIDE):
            self.tier(each)
        self.cut()
        self.check(0.0)

    def check(self, share: float) -> None:
        """All of it, and from an offset of each bucket on."""
        whole = self.read(OffsetMap())
        for bucket, rows in whole.items():
            keys = {key for _, _, key, _ in rows}
            offsets = [r[0] for r in rows]
            assert offsets == sorted(set(offsets)), "each once, in order"
            assert [r[1:] for r in rows] == [c for c in self.expected if c[1] in keys], bucket
        assert sum(map(len, whole.values())) == len(self.expected)
        starts = OffsetMap({b: int(share * rows[-1][0]) for b, rows in whole.items()})
        assert self.read(starts) == {b: [r for r in rows if r[0] >= starts[b]] for b, rows in whole.items()}

    def read(self, since: OffsetMap) -> dict[Bucket, list[tuple[int, str, int, str]]]:
        found: dict[Bucket, list[tuple[int, str, int, str]]] = {}
        for r in self.world.changes(PATH, since).to_table().to_pylist():
            change = (r["__offset"], r["__change_type"], r["id"], r["v"].removesuffix(PAD))
            found.setdefault(Bucket("", r["__bucket"]), []).append(change)
        return found

    # ---- steps ----
    def upsert(self, rows: list[tuple[int, str]]) -> None:
        self.world.upsert(PATH, [{"id": key, "v": value + PAD} for key, value in rows])
        for key, value in rows:
            before = self.state.get(key)
            if before == value:
                continue
            self.expected += [] if before is None else [("update_before", key, before)]
            self.expected.append(("insert" if before is None else "update_after", key, value))
            self.state[key] = value

    def delete(self, keys: list[int]) -> None:
        self.world.delete(PATH, [{"id": key} for key in keys])
        for key in keys:
            if key in self.state:
                self.expected.append(("delete", key, self.state.pop(key)))

    def tier(self, name: SideName) -> None:
        self.world.tier(PATH, name)
        self.clock.advance(400)
        self.world.tier(PATH, name)

    def crash(self, name: SideName) -> None:
        """The job dies between the lake's commit and the coordinator's."""
        with Faults() as faults:
            faults.arm("round.before-coordinator-commit", times=None)
            self.world.coordinator.ask_now(TablePath.parse(PATH), name)
            handed = self.world.take(PATH, side=name)
            if handed is not None:
                self.world.run(handed)

    def restart(self) -> None:
        self.world.restart()
        self.world.coordinator.lakes.read_unseen()

    def cut(self) -> None:
        """Retention takes what every side has."""
        cut_log(self.world, self.clock, PATH)

    def compact(self) -> None:
        if self.world.coordinator.board.find(TablePath.parse(PATH), CHANGES).token is not None:
            self.world.compact(PATH, CHANGES)

    def expire(self) -> None:
        for lake_side in self.world.coordinator.board.sides():
            self.world.coordinator.expiry.run(lake_side)


def play(steps: list[tuple[str, Any]], share: float, make: Callable[[Path], LakeStorage]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="changes-"))
    program = ChangesProgram(folder, make(folder))
    try:
        program.run(steps, share)
    finally:
        program.world.close()
        shutil.rmtree(folder)


@settings(max_examples=3, deadline=None)
@given(st.lists(step, max_size=8), st.floats(0, 1))
def test_the_changelog_is_the_list_of_changes(steps: list[tuple[str, Any]], share: float) -> None:
    play(steps, share, iceberg_lake)


@pytest.mark.soak
@pytest.mark.parametrize("make", [memory_lake, iceberg_lake, delta_lake, paimon_lake], ids=lambda m: m.__name__)
def test_changes_in_each_format_at_length(make: Callable[[Path], LakeStorage]) -> None:
    @settings(max_examples=60, deadline=None)
    @given(st.lists(step, min_size=6, max_size=25), st.floats(0, 1))
    def run(steps: list[tuple[str, Any]], share: float) -> None:
        play(steps, share, make)

    run()
