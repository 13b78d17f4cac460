# SPDX-License-Identifier: Apache-2.0
"""Files of live snapshots: recorded before they are written, deleted once no answer has named them for `live.keep`."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from lakeward.errors import LakeError, LakeTableGone, LakewardError
from lakeward.model.clock import Clock
from lakeward.model.ids import RoundId, TableId
from lakeward.model.table import TableInfo, TablePath
from lakeward.spi.lake.storage import LakeStorage

log = logging.getLogger(__name__)

FindTable = Callable[[TablePath, TableId], tuple[TableInfo, LakeStorage]]
"""The table as its lake has it, and its lake. Raises `LakewardError` for one that is gone."""

_SCHEMA = """CREATE TABLE IF NOT EXISTS live_files (
    live_id TEXT PRIMARY KEY, path TEXT NOT NULL, table_id TEXT NOT NULL, dropped_at_ms INTEGER)"""


class LiveFiles:
    """Thread-safe, and durable: files that a process left behind are deleted by the next one. A restart counts as an
    answer that named them, since nobody knows when the last one was."""

    def __init__(self, file: Path, clock: Clock, keep_s: float) -> None:
        self._clock, self._keep_ms = clock, int(keep_s * 1_000)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute(_SCHEMA)
        self._db.execute("UPDATE live_files SET dropped_at_ms = ? WHERE dropped_at_ms IS NULL", (clock.now_ms(),))

    def begin(self, live_id: RoundId, path: TablePath, table_id: TableId) -> None:
        """Before the first file of that name is written."""
        with self._lock:
            self._db.execute("INSERT INTO live_files VALUES (?, ?, ?, NULL)", (live_id, str(path), table_id))

    def keep_only(self, table_id: TableId, named: Collection[RoundId]) -> None:
        """What the newest answer of the table names; the rest goes after `live.keep`."""
        with self._lock:
            rows = self._db.execute(
                "SELECT live_id FROM live_files WHERE table_id = ? AND dropped_at_ms IS NULL", (table_id,)
            ).fetchall()
            over = [(self._clock.now_ms(), live_id) for (live_id,) in rows if live_id not in named]
            self._db.executemany("UPDATE live_files SET dropped_at_ms = ? WHERE live_id = ?", over)

    def count(self) -> int:
        with self._lock:
            return int(self._db.execute("SELECT count(*) FROM live_files").fetchone()[0])

    def sweep(self, find_table: FindTable) -> int:
        """Deletes what is over; returns the number of files. A table whose lake does not answer is tried again."""
        before = self._clock.now_ms() - self._keep_ms
        with self._lock:
            rows = self._db.execute(
                "SELECT path, table_id, live_id FROM live_files WHERE dropped_at_ms <= ?", (before,)
            ).fetchall()
        by_table: dict[tuple[str, str], list[RoundId]] = {}
        for path, table_id, live_id in rows:
            by_table.setdefault((path, table_id), []).append(RoundId(live_id))
        return sum(self._delete(find_table, *table, live_ids) for table, live_ids in by_table.items())

    def _delete(self, find_table: FindTable, path: str, table_id: str, live_ids: list[RoundId]) -> int:
        deleted = 0
        try:
            table, lake = find_table(TablePath.parse(path), TableId(table_id))
            upkeep, committer = lake.open_maintenance(table), lake.open_committer(table)
            listed = upkeep.list_by_prefix([committer.prefix(live_id) for live_id in live_ids])
            paths = [file.path for files in listed.values() for file in files]
            upkeep.delete(paths)
            deleted = len(paths)
        except LakeTableGone:
            log.info("live files of %s are left to whoever removed its lake table", path)
        except LakeError as error:
            log.warning("live files of %s could not be deleted, they are tried again: %s", path, error)
            return 0
        except LakewardError as error:
            log.info("live files of %s are left in its lake table: %s", path, error)
        with self._lock:
            self._db.executemany("DELETE FROM live_files WHERE live_id = ?", [(live_id,) for live_id in live_ids])
        return deleted

    def close(self) -> None:
        with self._lock:
            self._db.close()
