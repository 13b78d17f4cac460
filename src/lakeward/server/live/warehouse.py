# SPDX-License-Identifier: Apache-2.0
"""The live warehouse: finds the table and its moment, and answers with the hot tail."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from lakeward.config import Config, options
from lakeward.errors import SnapshotGone, TableNotFound
from lakeward.lake.iceberg.live import LiveMetadata
from lakeward.model import BackgroundThread, Clock, TableId, TablePath
from lakeward.protocol.auth import ANONYMOUS
from lakeward.protocol.facts import LiveFacts
from lakeward.protocol.readplan import WriteToken
from lakeward.server.live.files import LiveFiles
from lakeward.server.live.moment import Moments
from lakeward.server.live.source import LiveEntry, LiveSource
from lakeward.server.live.table import LiveLimits, LiveTable

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
    quota_bytes: int | None = None

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
            quota_bytes=config.get(options.LIVE_QUOTA_BYTES),
        )


class LiveWarehouse:
    """Thread-safe. `data`: the folder that records the files of answers. `on_sweep`: called after each."""

    def __init__(
        self,
        source: LiveSource,
        data: Path,
        clock: Clock,
        live_options: LiveOptions,
        on_sweep: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_sweep = on_sweep
        self._source, self._clock, self._options = source, clock, live_options
        self._moments = Moments(source.freeze, clock, live_options.hold_s, is_exact=source.is_exact)
        self._lock = threading.Lock()
        self._tables: dict[TableId, LiveTable] = {}
        self.files = LiveFiles(
            data / FILE, clock, live_options.keep_s, live_options.max_bytes, live_options.quota_bytes
        )
        self.thread = BackgroundThread("lakeward-live", self.sweep, _SWEEP_S)

    def close(self) -> None:
        self.thread.stop()
        self.files.close()

    def find(self, path: TablePath) -> LiveEntry | None:
        """None: the name belongs to a foreign table or to a changelog."""
        return self._source.find(path)

    def load(self, entry: LiveEntry, at_least: WriteToken | None = None, caller: str = ANONYMOUS.name) -> LiveMetadata:
        """The table with everything acknowledged up to the moment. `caller`: the token's name. Raises what the lake
        raises; `ReadTooFarAhead`, `TableBusy`, `LogTooShort`, `LiveQuotaExceeded`, `SnapshotGone`."""
        for tries_left in reversed(range(_TRIES)):
            try:
                return self._load(entry, at_least, caller)
            except SnapshotGone:
                if not tries_left:
                    raise
        raise AssertionError("the loop returns or raises")

    def _load(self, entry: LiveEntry, at_least: WriteToken | None, caller: str) -> LiveMetadata:
        entry.check_joined()
        moment = self._moments.take(entry.info, at_least)
        target = entry.target()
        table = target.table
        if table.table_id not in moment.ends:
            self._source.freeze([table])  # raises what kept it out of the moment
            raise TableNotFound(table=str(table.path))
        bounds = lambda: self._source.bounds(table)  # noqa: E731
        return self._table(table.table_id).answer(target, moment, bounds, entry.hold, caller)

    def _table(self, table_id: TableId) -> LiveTable:
        with self._lock:
            table = self._tables.get(table_id)
            if table is None:
                source, limits = self._source, self._options.limits
                table = LiveTable(table_id, source.store, self.files, limits, source.ask_round)
                self._tables[table_id] = table
            return table

    def figures(self) -> dict[TablePath, dict[str, float]]:
        """Figures of every table that was loaded since the start."""
        with self._lock:
            tables = dict(self._tables)
        now_ms, paths = self._clock.now_ms(), {table_id: self._source.find_path(table_id) for table_id in tables}
        return {path: t.figures(now_ms) for i, t in tables.items() if (path := paths[i]) is not None}

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
            is_dropped = self._source.find_path(table_id) is None
            table.forget(before_ms=self._clock.now_ms() + 1 if is_dropped else idle_ms)
            if is_dropped:
                with self._lock:
                    del self._tables[table_id]
                self._source.forget(table_id)
        self.files.sweep(self._source.find_lake)
        self._on_sweep()
