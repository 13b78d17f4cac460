# SPDX-License-Identifier: Apache-2.0
"""State of a Fluss cluster's lake tables, as far as the cluster and the lake show it: which tables are late and by how
much, which commits there were, and by which job. Fluss does not publish which job works on which table, so jobs are
recognized by their commits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from lakeward.config import options
from lakeward.errors import InvalidInput, LakewardError, NotFound
from lakeward.hot.fluss.lakehistory import FLINK
from lakeward.hot.fluss.plugin import FlussPlugin
from lakeward.hot.fluss.readplan import load_head
from lakeward.hot.fluss.supported import check_supported
from lakeward.hot.fluss.tables import freshness_ms
from lakeward.model import TIMESTAMP, Bucket, Clock, OffsetMap, SystemClock, TableInfo, TablePath
from lakeward.spi import COMMIT_USER, COMMIT_USER_KEY, LakeReader, LakeSnapshot, LakeTotals, LogBounds

_FILE_FIGURES = ("added-data-files", "deleted-data-files", "total-data-files")
"""Iceberg's summaries have at least one of them."""

CURRENT, BEHIND, LATE, REFUSED, UNREADABLE = "current", "behind", "late", "refused", "unreadable"


@dataclass(frozen=True, kw_only=True)
class TableView:
    """`waiting`: offsets that the lake lacks. `lag_ms`: how long the oldest of them has waited."""

    path: str
    state: str
    freshness_ms: int
    waiting: int = 0
    lag_ms: int = 0
    last_commit_at_ms: int | None = None
    job: str | None = None
    totals: LakeTotals | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class CommitView:
    """A snapshot that a tiering job added: a round, or a compaction. None: the lake's snapshots do not say it."""

    path: str
    kind: str
    committed_at_ms: int
    job: str
    rows: int | None
    deletes: int | None
    bytes_written: int | None
    snapshot_id: str
    round_id: str = ""
    files: int = 0
    files_replaced: int = 0


@dataclass(frozen=True, kw_only=True)
class TableLook:
    """All that one look at a table told; `commits` newest first."""

    table: TableInfo
    view: TableView
    commits: tuple[CommitView, ...] = ()
    committed: OffsetMap = field(default_factory=OffsetMap)


class ClusterView:
    def __init__(self, plugin: FlussPlugin, clock: Clock | None = None) -> None:
        self._plugin, self._store, self._clock = plugin, plugin.store(), clock or SystemClock()

    def lake_tables(self) -> list[TableInfo]:
        """Those that Fluss tiers."""
        return [t for t in self._find_all() if isinstance(t, TableInfo)]

    def views(self) -> list[TableView]:
        """Views of all lake tables, including those whose description cannot be parsed."""
        return [t if isinstance(t, TableView) else self.look_at(t) for t in self._find_all()]

    def _find_all(self) -> list[TableInfo | TableView]:
        found = [t for t in map(self._find, self._store.list_tables()) if t is not None]
        return [t for t in found if isinstance(t, TableView) or _is_tiered(t)]

    def lake_table(self, path: TablePath) -> TableInfo:
        """Raises `TableNotFound`, and `InvalidTable` for one that Fluss does not tier and never has."""
        table = self._store.load_table(path)
        self._plugin.lake_options(table)
        return table

    def _find(self, path: TablePath) -> TableInfo | TableView | None:
        try:
            return self._store.load_table(path)
        except NotFound:
            return None
        except InvalidInput as error:
            return TableView(path=str(path), state=REFUSED, freshness_ms=0, reason=str(error))

    def look_at(self, table: TableInfo) -> TableView:
        return self.look(table).view

    def look(self, table: TableInfo) -> TableLook:
        """Trouble with one table is its state."""
        try:
            check_supported(table)
            return self._look(table)
        except LakewardError as error:
            state = REFUSED if isinstance(error, InvalidInput) else UNREADABLE
            view = TableView(path=str(table.path), state=state, freshness_ms=freshness_ms(table), reason=str(error))
            return TableLook(table=table, view=view)

    def _look(self, table: TableInfo) -> TableLook:
        reader = self._plugin.open_reader(table)
        head = load_head(reader)
        committed = {} if head is None or head.offsets is None else head.offsets
        bounds = self._store.freeze(table)
        starts = {b: committed.get(b, bound.start) for b, bound in bounds.items()}
        behind = {b: start for b, start in starts.items() if start < bounds[b].end}
        lag_ms = self._lag_ms(table, behind, bounds)
        commits = tuple(view_commit(table, s) for s in _tiering(reader, head))
        newest = commits[0] if commits else None
        view = TableView(
            path=str(table.path),
            state=CURRENT if not behind else LATE if lag_ms > freshness_ms(table) else BEHIND,
            freshness_ms=freshness_ms(table),
            waiting=sum(bounds[b].end - start for b, start in behind.items()),
            lag_ms=lag_ms,
            last_commit_at_ms=None if newest is None else newest.committed_at_ms,
            job=None if newest is None else newest.job,
            totals=reader.totals(),
        )
        return TableLook(table=table, view=view, commits=commits, committed=OffsetMap(committed))

    def _lag_ms(self, table: TableInfo, behind: Mapping[Bucket, int], bounds: Mapping[Bucket, LogBounds]) -> int:
        """From the oldest waiting record of each bucket; its log keeps when it was written."""
        oldest = self._clock.now_ms()
        for bucket, start in behind.items():
            first = max(start, bounds[bucket].start)
            for batch in self._store.read_log(table, bucket, first, first + 1, []):
                if batch.num_rows:
                    oldest = min(oldest, round(batch.column(TIMESTAMP)[0].as_py().timestamp() * 1000))
        return max(0, self._clock.now_ms() - oldest)

    def commits(
        self, tables: Iterable[TableInfo], skip: Callable[[TableInfo, LakewardError], None]
    ) -> list[CommitView]:
        """Newest first, as far as the lake keeps snapshots. `skip` hears of tables that cannot be read."""
        views: list[CommitView] = []
        for table in tables:
            try:
                views += self.commits_of(table)
            except LakewardError as error:
                skip(table, error)
        return sorted(views, key=lambda v: -v.committed_at_ms)

    def commits_of(self, table: TableInfo) -> list[CommitView]:
        """Newest first. Raises what keeps its lake from being read."""
        reader = self._plugin.open_reader(table)
        return [view_commit(table, s) for s in _tiering(reader, load_head(reader))]


def _is_tiered(table: TableInfo) -> bool:
    return table.descriptor.properties.get(options.TABLE_DATALAKE_ENABLED.key, "false").lower() == "true"


def _tiering(reader: LakeReader, head: LakeSnapshot | None) -> Iterable[LakeSnapshot]:
    """Main's snapshots of tiering jobs, ours and the Flink job's, newest first."""
    by_id = {} if head is None else {s.snapshot_id: s for s in reader.snapshots()}
    at = None if head is None else head.snapshot_id
    while at is not None and at in by_id:
        snapshot = by_id[at]
        if snapshot.round_id is not None or snapshot.summary.get(COMMIT_USER_KEY) == COMMIT_USER:
            yield snapshot
        at = snapshot.parent_id


def view_commit(table: TableInfo, snapshot: LakeSnapshot) -> CommitView:
    def added(what: str) -> int:
        return int(snapshot.summary.get(f"added-{what}", "0"))

    names_files = any(key in snapshot.summary for key in _FILE_FIGURES)
    return CommitView(
        path=str(table.path),
        kind="compact" if snapshot.operation == "replace" else "tier",
        committed_at_ms=snapshot.committed_at_ms,
        job=snapshot.job or FLINK,
        rows=added("records") if names_files or "added-records" in snapshot.summary else None,
        deletes=added("position-deletes") + added("equality-deletes") if names_files else None,
        bytes_written=added("files-size") if names_files else None,
        snapshot_id=snapshot.snapshot_id,
        round_id=snapshot.round_id or snapshot.snapshot_id,
        files=added("data-files"),
        files_replaced=int(snapshot.summary.get("deleted-data-files", "0")),
    )
