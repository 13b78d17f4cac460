# SPDX-License-Identifier: Apache-2.0
"""The live warehouse of a server: finds the table, its moment and its read lease, and answers with the hot tail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from lakeward.config import Config, options
from lakeward.coordinator.coordinator import Coordinator
from lakeward.coordinator.state.record import LakeSide
from lakeward.errors import LakewardError, NotFound, SnapshotGone, TableBusy, TableNotFound
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.lake.iceberg.live import LiveMetadata
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import BackgroundThread, Clock, LakeBase, LeaseId, SnapshotId, TableId, TableInfo, TablePath
from lakeward.protocol.facts import LiveFacts
from lakeward.protocol.readplan import WriteToken
from lakeward.server.live.chunks import LiveTarget
from lakeward.server.live.files import LiveFiles
from lakeward.server.live.moment import Moments
from lakeward.server.live.table import LiveLimits, LiveTable
from lakeward.spi import LakeStorage

FILE = "live.db"
_SWEEP_S = 60.0
_TRIES = 5
"""Each failed try means that expiry or a round ran in between."""


@dataclass(frozen=True, kw_only=True)
class LiveOptions:
    hold_s: float
    keep_s: float
    limits: LiveLimits
    max_bytes: int

    @classmethod
    def of(cls, config: Config) -> LiveOptions:
        hold: timedelta = config.get(options.LIVE_HOLD)
        keep: timedelta = config.get(options.LIVE_KEEP)
        rows, size = config.get(options.LIVE_MAX_TAIL_ROWS), config.get(options.LIVE_MAX_TAIL_BYTES)
        return cls(
            hold_s=hold.total_seconds(),
            keep_s=keep.total_seconds(),
            limits=LiveLimits(rows=rows, bytes=size),
            max_bytes=config.get(options.LIVE_MAX_BYTES),
        )


@dataclass
class _Held:
    """The read lease of a table's newest answer."""

    lease_id: LeaseId
    head: SnapshotId | None
    ends_at_ms: int


class LiveWarehouse:
    """Thread-safe. `lakes`: names of those whose Iceberg catalog this server keeps."""

    def __init__(
        self,
        coordinator: Coordinator,
        store: EmbeddedStore,
        lakes: Collection[str],
        data: Path,
        clock: Clock,
        live_options: LiveOptions,
    ) -> None:
        self._coordinator, self._store, self._lakes, self._clock = coordinator, store, frozenset(lakes), clock
        self._options = live_options
        self._moments = Moments(store.look_at_ends, clock, live_options.hold_s)
        self._lock = threading.Lock()
        self._tables: dict[TableId, LiveTable] = {}
        self._held: dict[TableId, _Held] = {}
        self.files = LiveFiles(data / FILE, clock, live_options.keep_s, live_options.max_bytes)
        self.thread = BackgroundThread("lakeward-live", self.sweep, _SWEEP_S)

    def close(self) -> None:
        self.thread.stop()
        self.files.close()

    def find(self, path: TablePath) -> LakeSide | None:
        """The side of the Lakeward table that is registered in this server's catalog under this name; None: the name
        belongs to a foreign table or to a changelog."""
        try:
            sides = self._coordinator.board.find_table(path).with_state
        except NotFound:
            return None
        return self._find_side(sides)

    def _find_side(self, sides: Iterable[LakeSide]) -> LakeSide | None:
        return next((s for s in sides if s.options.lake in self._lakes), None)

    def load(self, side: LakeSide, at_least: WriteToken | None = None) -> LiveMetadata:
        """The table with everything acknowledged up to the moment. Raises what the lake raises; `ReadTooFarAhead`,
        `TableBusy`, `LogTooShort`, `SnapshotGone`."""
        for tries_left in reversed(range(_TRIES)):
            try:
                return self._load(side, at_least)
            except SnapshotGone:
                if not tries_left:
                    raise
        raise AssertionError("the loop returns or raises")

    def _load(self, side: LakeSide, at_least: WriteToken | None) -> LiveMetadata:
        _check_joined(side)
        moment = self._moments.take(side.info, at_least)
        table = self._store.load_table(side.info.path)  # after the ends: no record below them is of a newer schema
        if table.table_id not in moment.ends or table.table_id != side.table_id:
            raise TableNotFound(table=str(side.info.path))
        lake = self._coordinator.board.lakes(side.options.lake)
        assert isinstance(lake, IcebergLakeStorage), "this server's catalog holds Iceberg tables"
        target = LiveTarget(table=table, lake_table=side.lake_table, lake=lake, lake_name=side.options.lake)
        return self._table(side.table_id).answer(
            target, moment, lambda: self._store.bounds(table), lambda base: self._hold(side, base)
        )

    def _table(self, table_id: TableId) -> LiveTable:
        with self._lock:
            known = self._tables.get(table_id)
            if known is None:
                known = LiveTable(table_id, self._store, self.files, self._options.limits, self._ask_round)
                self._tables[table_id] = known
            return known

    def _hold(self, side: LakeSide, base: LakeBase) -> None:
        """Under the table's lock. A lease lasts for `live.keep` after the last answer at least, half as long again so
        that it is not renewed for each. The lease of an older head ends by itself. Raises `SnapshotGone`."""
        now_ms, keep_s = self._clock.now_ms(), self._options.keep_s
        held = self._held.get(side.table_id)
        if held is not None and held.head == base.head and held.ends_at_ms >= now_ms + keep_s * 1_000:
            return
        starts = {b: base.offsets.get(b, v.start) for b, v in self._store.bounds(side.info).items()}
        lease = self._coordinator.leases.take(side.id, base.head, starts, keep_s * 1.5)
        if lease is None:
            raise SnapshotGone(table=str(side.info.path), snapshot=str(base.head), advice="load the table again")
        self._held[side.table_id] = _Held(lease.lease_id, base.head, lease.ends_at_ms)

    def _ask_round(self, table: TableInfo) -> None:
        with suppress(LakewardError):  # a side that is paused gets none
            self._coordinator.ask_now(table.path)

    def figures(self) -> dict[TablePath, dict[str, float]]:
        """Figures of every table that was loaded since the start."""
        with self._lock:
            tables = dict(self._tables)
        records, now_ms = self._coordinator.board.tables, self._clock.now_ms()
        return {records[i].info.path: t.figures(now_ms) for i, t in tables.items() if i in records}

    def facts(self, may_use: Callable[[TablePath], bool]) -> LiveFacts:
        """For `lakeward doctor`."""
        cut = [path for path, f in self.figures().items() if not f["liveComplete"] and may_use(path)]
        return LiveFacts(
            bytes=self.files.bytes,
            max_bytes=self.files.max_bytes,
            cut_short=tuple(sorted(cut)),
            overdue=self.files.count_overdue(),
        )

    # ---- upkeep ----
    def sweep(self) -> None:
        """Deletes files that no answer has named for `live.keep`, and forgets tables that were dropped."""
        idle_ms = self._clock.now_ms() - int(self._options.keep_s * 1_000)
        with self._lock:
            tables = list(self._tables.items())
        for table_id, table in tables:
            is_dropped = table_id not in self._coordinator.board.tables
            table.forget(before_ms=self._clock.now_ms() + 1 if is_dropped else idle_ms)
            if is_dropped:
                with self._lock:
                    del self._tables[table_id]
                    self._held.pop(table_id, None)
        self.files.sweep(self._find_lake)

    def _find_lake(self, table_id: TableId, recorded: TableInfo | None, lake: str) -> tuple[TableInfo, LakeStorage]:
        """A table that was dropped may have its lake table still."""
        lakes, record = self._coordinator.board.lakes, self._coordinator.board.tables.get(table_id)
        side = None if record is None else self._find_side(record.with_state)
        if side is not None:
            return side.lake_table, lakes(side.options.lake)
        if recorded is None:
            raise TableNotFound(table=f"of id {table_id}")
        return recorded, lakes(lake)


def _check_joined(side: LakeSide) -> None:
    """Raises `TableBusy` where lake and log do not join: the answer would lack rows, or have some twice."""
    reason = "its lake is switched off, and rows since then are in the hot store alone"
    if side.options.enabled:
        reason = "its resync is not through yet" if side.resync is not None else side.broken or ""
    if reason:
        raise TableBusy(table=side.label, reason=reason)
