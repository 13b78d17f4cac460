# SPDX-License-Identifier: Apache-2.0
"""Where the facts of pages and metrics come from: a server's own coordinator and store, or somebody else's cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakeward.errors import TableBusy
from lakeward.model import Clock, SideId, SideName, TableInfo, TablePath, WorkKind
from lakeward.protocol.operate import CoordinatorStatus, LedgerAnswer
from lakeward.protocol.views import JobStatus, LagExplanation, RoundStatus, TableStatus
from lakeward.spi import LakeStorage, SupportsRewrite
from lakeward.tiering.compact.ground import load_compaction
from lakeward.tiering.compact.plan import describe_compaction
from lakeward.tiering.compact.shape import describe_shape
from lakeward.tiering.work.options import TieringOptions

if TYPE_CHECKING:
    from lakeward.coordinator.coordinator import Coordinator
    from lakeward.coordinator.state.record import LagDrop
    from lakeward.hot.embedded.sizes import TableSizes
    from lakeward.hot.embedded.store import EmbeddedStore

ACTIONS = ("tier-now", "maintain", "resync", "alter", "pause", "resume", "create")
"""Operations that a page may offer."""

PARTS = ("rows", "sql", "maintenance", "cost", "log")
"""Optional parts: a table's rows, properties and logs, and additional pages."""

Figures = Mapping[SideId, Mapping[str, float]]
WorkFigures = Mapping[tuple[SideId, WorkKind], Mapping[str, float]]


class PageSource(ABC):
    """Every method is called from the threads of HTTP, by several at once. What is gone raises `NotFound`."""

    actions: Sequence[str] = ()
    knows_log = False
    """Whether `sizes` tells what the hot tiers hold."""

    @abstractmethod
    def status(self) -> CoordinatorStatus: ...

    @abstractmethod
    def table_status(self, path: TablePath, side: SideName | None = None) -> TableStatus: ...

    @abstractmethod
    def explain(self, path: TablePath, side: SideName | None = None) -> LagExplanation: ...

    @abstractmethod
    def rounds(
        self, path: TablePath | None, limit: int, side: SideName | None, kind: WorkKind | None
    ) -> Sequence[RoundStatus]:
        """Newest first."""

    @abstractmethod
    def jobs(self) -> Sequence[JobStatus]: ...

    @abstractmethod
    def ledger(self, path: TablePath, limit: int, before: int | None, side: SideName | None) -> LedgerAnswer: ...

    @abstractmethod
    def load_table(self, path: TablePath) -> TableInfo: ...

    @abstractmethod
    def lake_files(self, path: TablePath, side: SideName | None) -> dict[str, Any]:
        """The effect of a compaction on these files. Reads the lake's newest file list."""

    @abstractmethod
    def side_figures(self) -> Figures: ...

    @abstractmethod
    def work_figures(self) -> WorkFigures: ...

    def sizes(self) -> Iterable[TableSizes]:
        """Sizes of each table in the hot tiers."""
        return ()

    def take_lag_drops(self) -> Sequence[LagDrop]:
        """Commits since the last call, oldest first. One thread calls this."""
        return ()


class ServerSource(PageSource):
    """A server's own facts."""

    actions, knows_log = (*ACTIONS, *PARTS), True

    def __init__(self, coordinator: Coordinator, store: EmbeddedStore, clock: Clock) -> None:
        self._coordinator, self._store, self._clock = coordinator, store, clock

    def status(self) -> CoordinatorStatus:
        return self._coordinator.views.status()

    def table_status(self, path: TablePath, side: SideName | None = None) -> TableStatus:
        return self._coordinator.views.table(path, side)

    def explain(self, path: TablePath, side: SideName | None = None) -> LagExplanation:
        return self._coordinator.views.explain(path, side)

    def rounds(
        self, path: TablePath | None, limit: int, side: SideName | None, kind: WorkKind | None
    ) -> Sequence[RoundStatus]:
        return self._coordinator.views.rounds(path, limit, side, kind)

    def jobs(self) -> Sequence[JobStatus]:
        return self._coordinator.views.jobs()

    def ledger(self, path: TablePath, limit: int, before: int | None, side: SideName | None) -> LedgerAnswer:
        return self._coordinator.views.ledger_page(path, limit, before, side)

    def load_table(self, path: TablePath) -> TableInfo:
        return self._store.load_table(path)

    def lake_files(self, path: TablePath, side: SideName | None) -> dict[str, Any]:
        board = self._coordinator.board
        with board.lock:
            found = board.find(path, side)
            storage = board.lake_of(found)
        return {**describe_lake_files(found.lake_table, found.label, storage, self._clock), "table": str(path)}

    def side_figures(self) -> Figures:
        return self._coordinator.views.side_figures()

    def work_figures(self) -> WorkFigures:
        return self._coordinator.views.work_figures()

    def sizes(self) -> Iterable[TableSizes]:
        return self._store.sizes()

    def take_lag_drops(self) -> Sequence[LagDrop]:
        drops = self._coordinator.board.lag_drops
        return [drops.popleft() for _ in range(len(drops))]


def describe_lake_files(table: TableInfo, label: str, storage: LakeStorage | None, clock: Clock) -> dict[str, Any]:
    """By the default policy: a job's own settings are the job's. Raises `TableBusy` where nothing can be rewritten."""
    if storage is None:
        raise TableBusy(table=label, reason="the lake is switched off for it; set table.datalake.enabled to true")
    if not isinstance(storage, SupportsRewrite):
        raise TableBusy(table=label, reason="its lake format has no files that Lakeward rewrites")
    ground = load_compaction(table, storage, TieringOptions(server=""), clock)
    return {
        "table": str(table.path),
        "files": ground.plan.files,
        "groups": describe_compaction(ground.plan),
        **describe_shape(ground.files, ground.plan, ground.committed_at_ms, clock.now_ms()),
    }
