# SPDX-License-Identifier: Apache-2.0
"""Random programs with our own compactions in them: beside rounds, both broken off at every step and as zombies, with
orphans removed in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from lakeward.errors import FaultInjected, LakewardError
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward.model import TablePath, set_injector
from lakeward.model.side import COMPACT
from lakeward.protocol.heartbeat import HandedOut, TableFinished
from lakeward.spi import LakeStorage
from lakeward.tiering.work.options import CompactionPolicy
from lakeward.verify import verify_table
from lakeward_testing.chaos.plan import JOB_STEPS
from tests.kit.iceberg.engines import read_datafusion, read_duckdb, read_pyiceberg
from tests.property.union_program import LOG, PK, Program
from tests.property.union_program import step as union_step

POINTS = (
    "compact.planned",
    "compact.before-write",
    "group.before-rewrite",
    "rewrite.written",
    "compact.written",
    "compact.before-rebase",
    "compact.before-lease-check",
    "compact.before-lake-commit",
    "compact.after-lake-commit",
)
LANDED = ("round.before-find", "round.after-coordinator-commit")
"""Reached after an answer that was lost, and when all is said."""

ROUND_POINTS = tuple(p for p in JOB_STEPS if p not in LANDED)
step = st.one_of(
    union_step,
    st.tuples(st.sampled_from(("round_beside", "break_round", "zombie_round")), st.sampled_from(ROUND_POINTS)),
    st.tuples(st.just("merge"), st.none()),
    st.tuples(st.sampled_from(("merge_beside", "break_merge", "zombie_merge")), st.sampled_from(POINTS)),
    st.tuples(st.just("remove_orphans"), st.none()),
)


@contextmanager
def acting(point: str, act: Callable[[], object]) -> Iterator[None]:
    """Acts once, at the first hit of the point."""
    left = [point]

    def inject(name: str, _facts: dict[str, Any]) -> None:
        if name in left:
            left.clear()
            act()

    before = set_injector(inject)
    try:
        yield
    finally:
        set_injector(before)


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


class MaintainedProgram(Program):
    """Every two files of a class are merged, so that small programs compact a lot."""

    def __init__(self, folder: Path, lake: LakeStorage, **properties: str) -> None:
        super().__init__(folder, lake, **properties)
        self._set_policy()

    def _set_policy(self) -> None:
        options = replace(self.world.world.options, compaction=CompactionPolicy(fan_in=2, max_deleted=0.1))
        self.world.world = replace(self.world.world, options=options)

    def restart(self) -> None:
        super().restart()
        self._set_policy()

    # ---- steps -----------------------------------------------------------------------------------------------------
    def merge(self) -> None:
        for path in (PK, LOG):
            handed = self._handed(path)
            if handed is not None:
                end = self.world.run(handed)
                assert isinstance(end, TableFinished), end

    def merge_beside(self, point: str) -> None:
        """A round lands in the middle, and takes out rows that are being rewritten."""
        for keys in (range(3), range(3, 6)):
            self.upsert([(("a", i), "x") for i in keys])
            self.append([("a", "x")])
            self.tier()
        for path in (PK, LOG):
            handed = self._handed(path)
            if handed is not None:
                with acting(point, self._change_and_tier):
                    self.world.run(handed)

    def _change_and_tier(self) -> None:
        self.upsert([(("a", i), "late") for i in (0, 3, 4)])
        self.delete([("a", 1)])
        self.append([("a", "late")])
        for path in (PK, LOG):
            self.world.tier(path)

    def break_merge(self, point: str) -> None:
        def fail() -> None:
            raise FaultInjected(point=point)

        for path in (PK, LOG):
            handed = self._handed(path)
            if handed is not None:
                with acting(point, fail):
                    self.world.run(handed)

    def zombie_merge(self, point: str) -> None:
        """It sleeps past its lease; another one and orphan removal go on meanwhile."""
        for path in (PK, LOG):
            handed = self._handed(path)
            if handed is not None:
                with acting(point, partial(self._overtake, path)):
                    self.world.run(handed)

    def _overtake(self, path: str) -> None:
        self.clock.advance(1_000)
        self.world.coordinator.schedule.tick()
        self._merge_one(path)
        self.remove_orphans()

    def remove_orphans(self) -> None:
        self.clock.advance(1_000)
        for path in (PK, LOG):
            self.world.coordinator.upkeep.remove_orphans_of(self.world.coordinator.board.find(TablePath.parse(path)))

    # ---- rounds ----------------------------------------------------------------------------------------------------
    def round_beside(self, point: str) -> None:
        """A compaction lands in the middle of a round."""
        self._hurt_rounds(point, lambda path: self._merge_one(path))

    def break_round(self, point: str) -> None:
        def fail(_path: str) -> None:
            raise FaultInjected(point=point)

        self._hurt_rounds(point, fail)

    def zombie_round(self, point: str) -> None:
        """It sleeps past its lease; another round, a compaction and orphan removal go on meanwhile."""

        def overtake(path: str) -> None:
            self.clock.advance(1_000)
            self.world.coordinator.schedule.tick()
            self.world.tier(path)
            self._merge_one(path)
            self.remove_orphans()

        self._hurt_rounds(point, overtake)

    def _hurt_rounds(self, point: str, act: Callable[[str], object]) -> None:
        self.upsert([(("a", 0), "y"), (("b", 4), "y")])
        self.append([("a", "y")])
        for path in (PK, LOG):
            self.world.coordinator.ask_now(TablePath.parse(path))
            handed = self.world.take(path)
            if handed is not None:
                with acting(point, partial(act, path)):
                    self.world.run(handed)

    def _merge_one(self, path: str) -> None:
        handed = self._handed(path)
        if handed is not None:
            self.world.run(handed)

    def _handed(self, path: str) -> HandedOut | None:
        """None: it was never tiered, or the failure of the last one is waited out."""
        try:
            self.world.coordinator.operations.maintain_now(TablePath.parse(path))
        except LakewardError:
            return None
        return self.world.take(path, COMPACT)

    # ---- what others see -------------------------------------------------------------------------------------------
    def check_engines(self) -> None:
        """Every engine that reads the lake's head shows the rows that we read of it."""
        lake = self.world.lake
        if isinstance(lake, PaimonLakeStorage):
            self._check_pypaimon(lake)
        if not isinstance(lake, IcebergLakeStorage):
            return
        for path in (PK, LOG):
            if lake.open_reader(self.world.store.load_table(TablePath.parse(path))).load_snapshot() is None:
                continue
            expected = self.world.read(path, mode="lake").to_table()
            table = lake.connection.load(TablePath.parse(path))
            head = table.metadata.current_snapshot()
            is_newest = head is not None and head.schema_id == table.metadata.current_schema_id
            # DataFusion finds no column that is younger than the snapshot.
            for engine in (read_duckdb, read_pyiceberg, *([read_datafusion] if is_newest else [])):
                found = engine(table.metadata_location).select(expected.column_names)
                assert rows_of(found) == rows_of(expected), (path, engine.__name__)

    def _check_pypaimon(self, lake: PaimonLakeStorage) -> None:
        for path in (PK, LOG):
            expected = self.world.read(path, mode="lake").to_table()
            builder = lake.connection.load(TablePath.parse(path)).new_read_builder()
            found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
            assert rows_of(found.select(expected.column_names)) == rows_of(expected), path

    def check_certificate(self) -> None:
        lake = self.world.lake
        for path in (PK, LOG):
            certificate = verify_table(
                self.world.plugin,
                TablePath.parse(path),
                deep=True,
                clock=self.clock,
                open_storage=lambda _plan: lake,
            )
            assert [(f.kind, f.words) for f in certificate.all_findings] == []
