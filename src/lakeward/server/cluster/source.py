# SPDX-License-Identifier: Apache-2.0
"""A Fluss cluster as the source of pages: looked at now and then by a thread, so that pages and Prometheus cost it
nothing.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lakeward.errors import LakeError, LakewardError, NotFound, TableNotFound
from lakeward.hot.fluss.clusterview import ClusterView, CommitView, TableLook
from lakeward.hot.fluss.lakehistory import read_ledger
from lakeward.hot.fluss.plugin import FlussPlugin
from lakeward.hot.fluss.readplan import load_head
from lakeward.model import (
    DEFAULT_SIDE,
    BackgroundThread,
    Clock,
    SideId,
    SideName,
    TableInfo,
    TablePath,
    TableState,
    WorkKind,
)
from lakeward.protocol.operate import CoordinatorStatus, LedgerAnswer
from lakeward.protocol.views import JobStatus, LagExplanation, RoundStatus, TableStatus, WorkStatus
from lakeward.server.cluster.ownjob import OwnJob
from lakeward.server.cluster.shown import explain_lag, show_commit, show_jobs, show_table, table_figures
from lakeward.server.feed.pagesource import Figures, PageSource, WorkFigures, describe_lake_files
from lakeward.tiering.compact.ground import load_debt

LOOK_S = 5.0
DEBT_S = 60.0
"""Debt is read from the lake's file list."""


class ClusterSource(PageSource):
    """`own`: the job of this process, if it is one."""

    def __init__(self, plugin: FlussPlugin, clock: Clock) -> None:
        self._plugin, self._clock, self._view = plugin, clock, ClusterView(plugin, clock)
        self.own: OwnJob | None = None
        self.thread = BackgroundThread("cluster", self.look, LOOK_S)
        self._lock = threading.Lock()
        self._looks: Mapping[TablePath, TableLook] = {}
        self._looked_at_ms, self._started_at_ms = 0, clock.now_ms()
        self._debts: dict[TablePath, tuple[float, WorkStatus | None]] = {}
        self._counted: set[tuple[str, str]] = set()
        self._totals: dict[tuple[SideId, WorkKind], Counter[str]] = {}
        self._trouble: str | None = None

    # ---- looking ---------------------------------------------------------------------------------------------------
    def look(self) -> None:
        """One look at every table. A cluster that does not answer leaves what was seen before, and says so."""
        try:
            looks = {t.path: self._view.look(t) for t in self._view.lake_tables()}
        except LakewardError as error:
            self._trouble = str(error)
            raise
        debts = {path: self._debt(look) for path, look in looks.items()}
        with self._lock:
            self._looks, self._looked_at_ms, self._trouble, self._debts = looks, self._clock.now_ms(), None, debts
            for look in looks.values():
                for commit in look.commits:
                    self._count(look, commit)

    def _debt(self, look: TableLook) -> tuple[float, WorkStatus | None]:
        now, cached_debt = self._clock.monotonic(), self._debts.get(look.table.path)
        if cached_debt is not None and now - cached_debt[0] < DEBT_S:
            return cached_debt
        if look.view.totals is None:
            return now, None
        try:
            lake = self._plugin.load_lake(look.table)
            return now, load_debt(look.table, lake, self._clock)
        except (LakeError, NotFound):
            return now, None

    def _count(self, look: TableLook, commit: CommitView) -> None:
        key = (commit.path, commit.snapshot_id)
        if key in self._counted or commit.committed_at_ms < self._started_at_ms:
            return
        self._counted.add(key)
        side = SideId(look.table.table_id, DEFAULT_SIDE)
        totals = self._totals.setdefault((side, WorkKind(commit.kind)), Counter())
        totals.update(
            roundsEnded=1,
            rowsOut=commit.rows or 0,
            deletesOut=commit.deletes or 0,
            bytesOut=commit.bytes_written or 0,
            filesReplaced=commit.files_replaced,
        )

    # ---- what pages ask --------------------------------------------------------------------------------------------
    def status(self) -> CoordinatorStatus:
        tables = tuple(self._shown(path) for path in sorted(self._looks))
        jobs = self.jobs()
        return CoordinatorStatus(
            coordinator_epoch=0,
            now_ms=self._clock.now_ms(),
            tables=tables,
            jobs=tuple(jobs),
            lakes={"fluss": self._trouble or ""},
            figures={
                "pendingTablesCount": sum(t.state is TableState.PENDING for t in tables),
                "runningTablesCount": sum(t.state is TableState.TIERING for t in tables),
                "lakeTableCount": len(tables),
                "jobsLive": sum(j.live for j in jobs),
                "slots": sum(j.slots or 0 for j in jobs if j.live),
            },
        )

    def table_status(self, path: TablePath, side: SideName | None = None) -> TableStatus:
        self._look_of(path)
        return self._shown(path)

    def explain(self, path: TablePath, side: SideName | None = None) -> LagExplanation:
        status = self.table_status(path)
        return explain_lag(self._look_of(path), status, status.state is TableState.TIERING)

    def rounds(
        self, path: TablePath | None, limit: int, side: SideName | None, kind: WorkKind | None
    ) -> Sequence[RoundStatus]:
        """Commits that the lake keeps snapshots of; where this process's job made one, as the job tells it."""
        own = [] if self.own is None else self.own.rounds()
        told = {r.snapshot_id for r in own if r.snapshot_id is not None}
        seen = [show_commit(c) for look in self._looks.values() for c in look.commits if c.snapshot_id not in told]
        chosen = [r for r in (*own, *seen) if path in (None, r.path) and kind in (None, r.kind)]
        return sorted(chosen, key=lambda r: -r.ended_at_ms)[:limit]

    def jobs(self) -> Sequence[JobStatus]:
        return show_jobs(self._looks.values(), () if self.own is None else (self.own.status(),))

    def ledger(self, path: TablePath, limit: int, before: int | None, side: SideName | None) -> LedgerAnswer:
        """By the lake's snapshots, all in one answer."""
        table = self._look_of(path).table
        reader = self._plugin.open_reader(table)
        head = load_head(reader)
        entries = () if head is None else read_ledger(table.table_id, reader.snapshots(), head.snapshot_id)
        return LedgerAnswer(
            path=path,
            generation=0 if head is None else head.generation,
            committed=self._look_of(path).committed,
            entries=tuple(entries)[-limit:],
        )

    def load_table(self, path: TablePath) -> TableInfo:
        return self._plugin.store().load_table(path)

    def lake_files(self, path: TablePath, side: SideName | None) -> dict[str, Any]:
        table = self.load_table(path)
        return describe_lake_files(table, str(path), self._plugin.load_lake(table), self._clock)

    def side_figures(self) -> Figures:
        now_ms = self._clock.now_ms()
        shown = [self._shown(path) for path in self._looks]
        return {SideId(t.table_id, DEFAULT_SIDE): table_figures(t, now_ms) for t in shown}

    def work_figures(self) -> WorkFigures:
        with self._lock:
            return {key: dict(totals) for key, totals in self._totals.items()}

    # ---- pieces ----------------------------------------------------------------------------------------------------
    def _look_of(self, path: TablePath) -> TableLook:
        look = self._looks.get(path)
        if look is None:
            raise TableNotFound(table=str(path))
        return look

    def _shown(self, path: TablePath) -> TableStatus:
        with self._lock:
            look, debt = self._looks[path], self._debts.get(path, (0.0, None))[1]
            aged_ms = max(0, self._clock.now_ms() - self._looked_at_ms)
        own = [] if self.own is None else [r for r in self.own.rounds() if r.path == path]
        status = show_table(look, aged_ms, debt, own)
        works = {} if self.own is None else self.own.works()
        return replace(status, state=TableState.TIERING) if path in works else status
