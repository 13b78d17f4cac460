# SPDX-License-Identifier: Apache-2.0
"""meta.db: tables with all their schemas, partitions, and what must be remembered about offsets. SQLite, one writer."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakeward.model import Ballast, Bucket, LeftOut, OffsetRange, Schema, TableId, TableInfo, new_folder_name

_TABLES = """
CREATE TABLE IF NOT EXISTS tables (
    table_id TEXT PRIMARY KEY, path TEXT NOT NULL, info TEXT NOT NULL, paused TEXT,
    dropping INTEGER NOT NULL DEFAULT 0, folder TEXT);
CREATE UNIQUE INDEX IF NOT EXISTS live_path ON tables (path) WHERE dropping = 0;
CREATE TABLE IF NOT EXISTS schemas (
    table_id TEXT NOT NULL, schema_id INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (table_id, schema_id));
CREATE TABLE IF NOT EXISTS partitions (
    partition_id INTEGER PRIMARY KEY AUTOINCREMENT, table_id TEXT NOT NULL, name TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL, dropping INTEGER NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX IF NOT EXISTS live_partition ON partitions (table_id, name) WHERE dropping = 0;
CREATE TABLE IF NOT EXISTS ends (
    table_id TEXT NOT NULL, bucket TEXT NOT NULL, offset INTEGER NOT NULL, PRIMARY KEY (table_id, bucket));
CREATE TABLE IF NOT EXISTS gaps (
    table_id TEXT NOT NULL, bucket TEXT NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL, at_ms INTEGER NOT NULL,
    PRIMARY KEY (table_id, bucket, start));
CREATE TABLE IF NOT EXISTS stopped (
    table_id TEXT NOT NULL, bucket TEXT NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (table_id, bucket));
CREATE TABLE IF NOT EXISTS loads (table_id TEXT PRIMARY KEY, note TEXT NOT NULL, progress TEXT NOT NULL);
"""

_DROPPING, _LOADING = 1, 2
"""In `tables.dropping`; 0: the table is live. Older versions know neither a table that is loading nor its load."""


@dataclass(frozen=True, kw_only=True)
class HotTableState:
    """One table as it was left: `schemas` by id, oldest first; `partitions` name -> id."""

    info: TableInfo
    folder: str
    """The name of the folder below `tables/` that holds its files."""

    schemas: tuple[Schema, ...]
    partitions: Mapping[str, int]
    stopped: Mapping[Bucket, str]
    ends: Mapping[Bucket, int]
    """Smallest offset of the next row: the log, or a commit to the lake, already reached it."""

    paused: str | None = None


@dataclass(frozen=True, kw_only=True)
class StoredLoad:
    """A table that is not live yet: `note` is what its loader wrote down of it, `progress` how far it came."""

    table: HotTableState
    note: Mapping[str, Any]
    progress: Mapping[str, Any]


class MetaDb:
    """Thread-safe. Every change is on disk when the call returns."""

    def __init__(self, path: Path, ballast: Ballast | None = None) -> None:
        """Raises `DiskFull`, as every change does."""
        self._lock, self._ballast = threading.Lock(), ballast or Ballast(path.parent, 0)
        self.left_out = LeftOut(path.name)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        with self._ballast.writing(), ExitStack() as on_failure:
            on_failure.callback(self._db.close)
            for pragma in ("journal_mode = WAL", "synchronous = FULL"):
                self._db.execute(f"PRAGMA {pragma}")
            self._db.executescript(_TABLES)
            if "folder" not in {row[1] for row in self._db.execute("PRAGMA table_info(tables)")}:
                self._db.execute("ALTER TABLE tables ADD COLUMN folder TEXT")  # none: the table's id is its name
            on_failure.pop_all()

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._ballast.writing():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite ends some by itself
                    self._db.execute("ROLLBACK")
                raise

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(query, values).fetchall()

    # ---- tables --------------------------------------------------------------------------------------------------
    def load_tables(self) -> list[HotTableState]:
        rows = self._rows("SELECT path, info, folder, paused FROM tables WHERE dropping = 0 ORDER BY path")
        return self.left_out.sensible("table", rows, self._stored)

    def _stored(self, row: tuple[str, str, str | None, str | None]) -> HotTableState:
        info, folder, paused = *_read_info(*row[1:3]), row[3]
        key = info.table_id
        schemas = self._rows("SELECT body FROM schemas WHERE table_id = ? ORDER BY schema_id", key)
        partitions = self._rows(
            "SELECT name, partition_id FROM partitions WHERE table_id = ? AND dropping = 0 ORDER BY name", key
        )
        stopped = self._rows("SELECT bucket, reason FROM stopped WHERE table_id = ?", key)
        ends = self._rows("SELECT bucket, offset FROM ends WHERE table_id = ?", key)
        return HotTableState(
            info=info,
            folder=folder,
            schemas=tuple(Schema.from_json(json.loads(body)) for (body,) in schemas),
            partitions=dict(partitions),
            stopped={Bucket.parse(b): reason for b, reason in stopped},
            ends={Bucket.parse(b): end for b, end in ends},
            paused=paused,
        )

    def add_table(self, info: TableInfo, note: Mapping[str, Any] | None = None) -> str | None:
        """The name of the folder that is its own; None: a table of that path is there. With a note it is one that is
        loaded, and not live before `publish`."""
        folder = new_folder_name()
        try:
            with self._change() as db:
                db.execute(
                    "INSERT INTO tables (table_id, path, info, folder, dropping) VALUES (?, ?, ?, ?, ?)",
                    (info.table_id, str(info.path), _text(info), folder, 0 if note is None else _LOADING),
                )
                _put_schema(db, info)
                if note is not None:
                    db.execute("INSERT INTO loads VALUES (?, ?, '{}')", (info.table_id, json.dumps(note)))
        except sqlite3.IntegrityError:
            return None
        return folder

    def alter_table(self, info: TableInfo) -> None:
        with self._change() as db:
            db.execute("UPDATE tables SET info = ? WHERE table_id = ?", (_text(info), info.table_id))
            _put_schema(db, info)

    def pause(self, table_id: TableId, reason: str | None) -> None:
        with self._change() as db:
            db.execute("UPDATE tables SET paused = ? WHERE table_id = ?", (reason, table_id))

    def mark_table_dropping(self, table_id: TableId) -> None:
        with self._change() as db:
            db.execute("UPDATE tables SET dropping = ? WHERE table_id = ?", (_DROPPING, table_id))

    def forget_table(self, table_id: TableId) -> None:
        """Once its files are gone."""
        with self._change() as db:
            for table in ("schemas", "partitions", "ends", "gaps", "stopped", "loads", "tables"):
                db.execute(f"DELETE FROM {table} WHERE table_id = ?", (table_id,))  # noqa: S608

    def dropping_tables(self) -> list[tuple[TableInfo, str]]:
        """Each with the name of its folder."""
        rows = self._rows("SELECT path, info, folder FROM tables WHERE dropping = 1")
        return self.left_out.sensible("dropped table", rows, lambda row: _read_info(*row[1:]))

    # ---- tables that are loaded ----------------------------------------------------------------------------------
    def load_loads(self) -> list[StoredLoad]:
        rows = self._rows(
            "SELECT path, info, folder, note, progress FROM tables JOIN loads USING (table_id) WHERE dropping = ?",
            _LOADING,
        )
        return self.left_out.sensible("table that is loaded", rows, self._stored_load)

    def _stored_load(self, row: tuple[str, str, str | None, str, str]) -> StoredLoad:
        note, progress = (json.loads(text) for text in row[3:])
        return StoredLoad(table=self._stored((*row[:3], None)), note=note, progress=progress)

    def save_progress(self, table_id: TableId, progress: Mapping[str, Any]) -> None:
        with self._change() as db:
            db.execute("UPDATE loads SET progress = ? WHERE table_id = ?", (json.dumps(progress), table_id))

    def begin_anew(self, table_id: TableId, note: Mapping[str, Any]) -> str:
        """The name of its new folder; what lies in the old one is no part of it any more."""
        folder = new_folder_name()
        with self._change() as db:
            db.execute("UPDATE tables SET folder = ? WHERE table_id = ?", (folder, table_id))
            db.execute("DELETE FROM partitions WHERE table_id = ?", (table_id,))
            db.execute("UPDATE loads SET note = ?, progress = '{}' WHERE table_id = ?", (json.dumps(note), table_id))
        return folder

    def publish(self, table_id: TableId, ends: Mapping[Bucket, int]) -> None:
        """The table is live; the logs of its buckets begin at these offsets."""
        with self._change() as db:
            for bucket, end in ends.items():
                _raise_end(db, table_id, bucket, end)
            db.execute("UPDATE tables SET dropping = 0 WHERE table_id = ?", (table_id,))
            db.execute("DELETE FROM loads WHERE table_id = ?", (table_id,))

    # ---- partitions ----------------------------------------------------------------------------------------------
    def add_partition(self, table_id: TableId, name: str, at_ms: int) -> int:
        with self._change() as db:
            cursor = db.execute(
                "INSERT INTO partitions (table_id, name, created_at_ms) VALUES (?, ?, ?)", (table_id, name, at_ms)
            )
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    def mark_partition_dropping(self, table_id: TableId, name: str, ends: Mapping[Bucket, int]) -> None:
        """Remembers where its logs ended: should the partition come again, its offsets go on from there."""
        with self._change() as db:
            db.execute("UPDATE partitions SET dropping = 1 WHERE table_id = ? AND name = ?", (table_id, name))
            for bucket, end in ends.items():
                _raise_end(db, table_id, bucket, end)

    def forget_partition(self, partition_id: int) -> None:
        with self._change() as db:
            db.execute("DELETE FROM partitions WHERE partition_id = ?", (partition_id,))

    def dropping_partitions(self) -> list[tuple[TableId, int]]:
        rows = self._rows("SELECT table_id, partition_id FROM partitions WHERE dropping = 1")
        return self.left_out.sensible("partition of table", rows, lambda row: (TableId(row[0]), int(row[1])))

    # ---- offsets -------------------------------------------------------------------------------------------------
    def add_gap(self, table_id: TableId, bucket: Bucket, gap: OffsetRange, at_ms: int) -> None:
        """Before the log skips: a crash in between finds the end here and skips at the next start."""
        with self._change() as db:
            _raise_end(db, table_id, bucket, gap.stop)
            db.execute(
                "INSERT OR IGNORE INTO gaps (table_id, bucket, start, stop, at_ms) VALUES (?, ?, ?, ?, ?)",
                (table_id, str(bucket), gap.start, gap.stop, at_ms),
            )

    def gaps(self, table_id: TableId) -> list[tuple[Bucket, OffsetRange]]:
        rows = self._rows("SELECT bucket, start, stop FROM gaps WHERE table_id = ? ORDER BY bucket, start", table_id)
        return [(Bucket.parse(b), OffsetRange(start, stop)) for b, start, stop in rows]

    def stop(self, table_id: TableId, bucket: Bucket, reason: str | None) -> None:
        with self._change() as db:
            db.execute("DELETE FROM stopped WHERE table_id = ? AND bucket = ?", (table_id, str(bucket)))
            if reason is not None:
                db.execute(
                    "INSERT INTO stopped (table_id, bucket, reason) VALUES (?, ?, ?)", (table_id, str(bucket), reason)
                )


def _raise_end(db: sqlite3.Connection, table_id: TableId, bucket: Bucket, end: int) -> None:
    db.execute(
        "INSERT INTO ends (table_id, bucket, offset) VALUES (?, ?, ?) "
        "ON CONFLICT (table_id, bucket) DO UPDATE SET offset = max(offset, excluded.offset)",
        (table_id, str(bucket), end),
    )


def _put_schema(db: sqlite3.Connection, info: TableInfo) -> None:
    body = json.dumps(info.schema.to_json())
    db.execute(
        "INSERT OR IGNORE INTO schemas (table_id, schema_id, body) VALUES (?, ?, ?)",
        (info.table_id, info.schema.schema_id, body),
    )


def _read_info(text: str, folder: str | None) -> tuple[TableInfo, str]:
    """With the name of its folder; the files of one that cannot be read are left alone."""
    info = TableInfo.from_json(json.loads(text))
    return info, folder or info.table_id


def _text(info: TableInfo) -> str:
    return json.dumps(info.to_json())
