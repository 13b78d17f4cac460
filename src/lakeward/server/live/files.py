# SPDX-License-Identifier: Apache-2.0
"""Files of live snapshots: recorded before they are written, deleted once no answer has named them for `live.keep`."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from lakeward.errors import LakeError, LakeTableGone, LakewardError, LiveQuotaExceeded, TableBusy
from lakeward.model import Clock, RoundId, TableId, TableInfo
from lakeward.protocol.auth import ANONYMOUS
from lakeward.spi import LakeStorage

log = logging.getLogger(__name__)

FindTable = Callable[[TableId, TableInfo | None, str], tuple[TableInfo, LakeStorage]]
"""The table as its lake has it now, and its lake, from what was recorded of a table that may have been dropped since.
Raises `LakewardError` where neither is known."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS live_files (
    live_id TEXT PRIMARY KEY, path TEXT NOT NULL, table_id TEXT NOT NULL, dropped_at_ms INTEGER);
CREATE TABLE IF NOT EXISTS live_bytes (live_id TEXT PRIMARY KEY, bytes INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS live_makers (live_id TEXT PRIMARY KEY, token TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS live_tables (table_id TEXT PRIMARY KEY, lake TEXT NOT NULL, body TEXT NOT NULL);
"""

OVERDUE_MS = 10 * 60_000
"""Ten sweeps: a lake that is away for so long is worth a word."""

_LOCKED_S = 1.0
"""How long a start waits for a process that has the record and ends."""

METADATA_BYTES = 64 * 1024
"""Assumed size of one answer's manifests and manifest list."""


class LiveFiles:
    """Thread-safe, and durable: files that a process left behind are deleted by the next one. A restart counts as an
    answer that named them, as the time of the last one is not stored. One process at a time: raises
    `sqlite3.OperationalError` while another one has the record."""

    def __init__(self, file: Path, clock: Clock, keep_s: float, max_bytes: int, quota_bytes: int | None = None) -> None:
        """`quota_bytes`: what the loads of one token may fill; None: all of it."""
        self._clock, self._keep_ms, self._max_bytes = clock, int(keep_s * 1_000), max_bytes
        self._quota_bytes = max_bytes if quota_bytes is None else quota_bytes
        self._lock = threading.Lock()
        self._db = sqlite3.connect(file, timeout=_LOCKED_S, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA locking_mode=EXCLUSIVE")  # another process would let files go that this one names
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_SCHEMA)
        self._db.execute("UPDATE live_files SET dropped_at_ms = ? WHERE dropped_at_ms IS NULL", (clock.now_ms(),))
        self._bytes = int(self._db.execute("SELECT coalesce(sum(bytes), 0) FROM live_bytes").fetchone()[0])
        self._recorded: dict[TableId, tuple[TableInfo, str]] = {}

    def check_room(self, table: TableInfo, caller: str) -> None:
        """Raises `LiveQuotaExceeded` where the caller's loads have filled its part, `TableBusy` where files of live
        answers take all of `live.max-bytes`: callers have read rights alone, and must not fill the lake."""
        with self._lock:
            used = 0 if caller == ANONYMOUS.name else self._bytes_of(caller)
            if used + METADATA_BYTES > self._quota_bytes:
                raise LiveQuotaExceeded(
                    table=str(table.path), token_name=caller, used_bytes=used, limit_bytes=self._quota_bytes
                )
            if self._bytes + METADATA_BYTES > self._max_bytes:
                reason = (
                    f"files of live answers take {self._bytes:,} bytes of `live.max-bytes` ({self._max_bytes:,}), and "
                    "go `live.keep` after the last answer that named them; load it again later, or raise the limit"
                )
                raise TableBusy(table=str(table.path), reason=reason)

    def _bytes_of(self, caller: str) -> int:
        query = "SELECT coalesce(sum(bytes), 0) FROM live_makers JOIN live_bytes USING (live_id) WHERE token = ?"
        return int(self._db.execute(query, (caller,)).fetchone()[0])

    def begin(self, live_id: RoundId, table: TableInfo, lake: str, caller: str) -> None:
        """Before the first file of that name is written. `table`: as its lake has it. `caller`: the token whose load
        needs the files."""
        with self._lock:
            if self._recorded.get(table.table_id) != (table, lake):
                row = (table.table_id, lake, json.dumps(table.to_json()))
                self._db.execute("INSERT OR REPLACE INTO live_tables VALUES (?, ?, ?)", row)
                self._recorded[table.table_id] = table, lake
            self._db.execute(
                "INSERT INTO live_files VALUES (?, ?, ?, NULL)", (live_id, str(table.path), table.table_id)
            )
            self._db.execute("INSERT INTO live_makers VALUES (?, ?)", (live_id, caller))
            self._add_bytes(live_id, METADATA_BYTES)

    def finish(self, live_id: RoundId, size: int) -> None:
        """Once all of its files are written. `size`: bytes of data and delete files."""
        with self._lock:
            self._bytes -= METADATA_BYTES
            self._add_bytes(live_id, METADATA_BYTES + size)

    def _add_bytes(self, live_id: RoundId, size: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO live_bytes VALUES (?, ?)", (live_id, size))
        self._bytes += size

    def keep_only(self, table_id: TableId, named: Collection[RoundId]) -> None:
        """Keeps the files that the table's newest answer names; the others are deleted after `live.keep`."""
        with self._lock:
            rows = self._db.execute(
                "SELECT live_id FROM live_files WHERE table_id = ? AND dropped_at_ms IS NULL", (table_id,)
            ).fetchall()
            over = [(self._clock.now_ms(), live_id) for (live_id,) in rows if live_id not in named]
            self._db.executemany("UPDATE live_files SET dropped_at_ms = ? WHERE live_id = ?", over)

    def count(self) -> int:
        with self._lock:
            return int(self._db.execute("SELECT count(*) FROM live_files").fetchone()[0])

    def count_overdue(self) -> int:
        """Answers whose files the last sweeps should have deleted."""
        before = self._clock.now_ms() - self._keep_ms - OVERDUE_MS
        with self._lock:
            query = "SELECT count(*) FROM live_files WHERE dropped_at_ms <= ?"
            return int(self._db.execute(query, (before,)).fetchone()[0])

    @property
    def bytes(self) -> int:
        """Size of the files of all answers that were not deleted yet."""
        return self._bytes

    @property
    def max_bytes(self) -> int:
        return self._max_bytes

    def sweep(self, find_table: FindTable) -> int:
        """Deletes what is over; returns the number of files. A table whose lake does not answer is tried again."""
        before = self._clock.now_ms() - self._keep_ms
        with self._lock:
            rows = self._db.execute(
                "SELECT path, table_id, live_id FROM live_files WHERE dropped_at_ms <= ?", (before,)
            ).fetchall()
        by_table: dict[tuple[str, TableId], list[RoundId]] = {}
        for path, table_id, live_id in rows:
            by_table.setdefault((path, TableId(table_id)), []).append(RoundId(live_id))
        return sum(self._delete(find_table, *table, live_ids) for table, live_ids in by_table.items())

    def _delete(self, find_table: FindTable, path: str, table_id: TableId, live_ids: list[RoundId]) -> int:
        deleted = 0
        try:
            table, lake = find_table(table_id, *self._load_table(table_id))
            upkeep, committer = lake.open_maintenance(table), lake.open_committer(table)
            listed = upkeep.list_by_prefix([committer.prefix(live_id) for live_id in live_ids])
            paths = [file.path for files in listed.values() for file in files]
            upkeep.delete(paths)
            deleted = len(paths)
        except LakeTableGone:
            log.info("live files of %s went with its lake table, or are left to whom removed it", path)
        except LakeError as error:
            log.warning("live files of %s could not be deleted, they are tried again: %s", path, error)
            return 0
        except LakewardError as error:
            log.warning("live files of %s are left in its lake table: %s", path, error)
        self._forget(table_id, live_ids)
        return deleted

    def _load_table(self, table_id: TableId) -> tuple[TableInfo | None, str]:
        """Reads the record of `begin`; a file of an earlier version has none."""
        with self._lock:
            row = self._db.execute("SELECT body, lake FROM live_tables WHERE table_id = ?", (table_id,)).fetchone()
        return (None, "") if row is None else (TableInfo.from_json(json.loads(row[0])), str(row[1]))

    def _forget(self, table_id: TableId, live_ids: list[RoundId]) -> None:
        rows = [(live_id,) for live_id in live_ids]
        with self._lock:
            self._db.executemany("DELETE FROM live_files WHERE live_id = ?", rows)
            self._db.executemany("DELETE FROM live_bytes WHERE live_id = ?", rows)
            self._db.executemany("DELETE FROM live_makers WHERE live_id = ?", rows)
            self._bytes = int(self._db.execute("SELECT coalesce(sum(bytes), 0) FROM live_bytes").fetchone()[0])
            if not self._db.execute("SELECT 1 FROM live_files WHERE table_id = ? LIMIT 1", (table_id,)).fetchone():
                self._db.execute("DELETE FROM live_tables WHERE table_id = ?", (table_id,))
                self._recorded.pop(table_id, None)

    def close(self) -> None:
        with self._lock:
            self._db.close()
