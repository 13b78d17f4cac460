# SPDX-License-Identifier: Apache-2.0
"""The coordinator's durable state in SQLite (WAL). Called under the board's lock; what it wrote is on disk when it
returns.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakeward.errors import DataFolderVersion
from lakeward.model.bucket import Bucket
from lakeward.model.ids import Epoch, JobName, RoundId, SnapshotId, TableId
from lakeward.model.ledger import LedgerEntry, LedgerKind
from lakeward.model.offsets import OffsetMap, OffsetRange

FORMAT_VERSION = 1

_TABLES = """
create table if not exists meta (key text primary key, value text not null) without rowid;
create table if not exists tables (
  table_id text primary key, path text not null, state text not null, epoch integer not null,
  changed_at_ms integer not null,
  body text not null) without rowid;
create table if not exists offsets (table_id text primary key, body text not null) without rowid;
create table if not exists jobs (name text primary key, body text not null) without rowid;
create table if not exists rounds (
  seq integer primary key autoincrement, round_id text, table_id text not null, ended_at_ms integer not null,
  body text not null);
create index if not exists rounds_by_table on rounds (table_id, seq);
create table if not exists ledger (
  seq integer primary key autoincrement, table_id text not null, generation integer not null, bucket text not null,
  start integer not null, stop integer not null, round_id text not null, snapshot_id text, epoch integer not null,
  job text not null,
  kind text not null, rows integer, committed_at_ms integer not null);
create index if not exists ledger_by_table on ledger (table_id, seq);
create table if not exists known_rounds (
  table_id text not null, round_id text not null, at_ms integer not null, primary key (table_id,
  round_id)) without rowid;
create table if not exists intents (
  round_id text primary key, table_id text not null, recorded_at_ms integer not null, state text not null,
  body text not null) without rowid;
create index if not exists intents_by_table on intents (table_id, recorded_at_ms);
create table if not exists read_leases (
  lease_id text primary key, table_id text not null, snapshot_id text, ends_at_ms integer not null,
  offsets text not null) without rowid;
create table if not exists marks (
  table_id text not null, snapshot_id text not null, trace text not null default '', token text,
  primary key (table_id, snapshot_id)) without rowid;
"""


@dataclass(frozen=True, kw_only=True)
class StoredTable:
    table_id: TableId
    path: str
    state: str
    epoch: Epoch
    body: dict[str, Any]


class StateStore:
    """One connection; the caller serialises. `transaction` groups what must be on disk together."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._depth = 0

    @classmethod
    def open(cls, path: Path | str, *, sync: bool = True) -> StateStore:
        """Opens or creates. Without `sync` a power cut may lose the newest transactions: for simulations. Raises
        `DataFolderVersion` for a file of a newer version."""
        connection = sqlite3.connect(str(path), isolation_level=None, check_same_thread=False)
        connection.execute("pragma journal_mode = wal")
        # FULL: an epoch that was handed out survives a power cut too.
        connection.execute(f"pragma synchronous = {'full' if sync else 'off'}")
        connection.executescript(_TABLES)
        _add_columns(connection, "marks", {"trace": "text not null default ''", "token": "text"})
        store = cls(connection)
        version = int(store.meta("format_version") or FORMAT_VERSION)
        if version > FORMAT_VERSION:
            connection.close()
            raise DataFolderVersion(folder=str(path), found=version, known=FORMAT_VERSION)
        store.set_meta("format_version", str(FORMAT_VERSION))
        return store

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Nested ones join the outer one. An exception rolls back everything."""
        if self._depth:
            yield
            return
        self._depth += 1
        try:
            self.connection.execute("begin immediate")
            try:
                yield
            except BaseException:
                self.connection.execute("rollback")
                raise
            self.connection.execute("commit")
        finally:
            self._depth -= 1

    # ---- meta ----
    def meta(self, key: str) -> str | None:
        row = self.connection.execute("select value from meta where key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def set_meta(self, key: str, value: str) -> None:
        self.connection.execute("insert or replace into meta values (?, ?)", (key, value))

    # ---- tables ----
    def save_tables(self, rows: Iterable[StoredTable], now_ms: int) -> None:
        self.connection.executemany(
            "insert or replace into tables values (?, ?, ?, ?, ?, ?)",
            [(r.table_id, r.path, r.state, r.epoch, now_ms, _text(r.body)) for r in rows],
        )

    def load_tables(self) -> list[StoredTable]:
        rows = self.connection.execute("select table_id, path, state, epoch, body from tables")
        return [
            StoredTable(table_id=TableId(t), path=p, state=s, epoch=Epoch(e), body=json.loads(b))
            for t, p, s, e, b in rows
        ]

    def forget_tables(self, state: str, before_ms: int) -> None:
        """Removes every trace of tables that have been in this state since before that time."""
        ids = [
            r[0]
            for r in self.connection.execute(
                "select table_id from tables where state = ? and changed_at_ms < ?", (state, before_ms)
            )
        ]
        for name in ("tables", "offsets", "rounds", "ledger", "known_rounds", "intents", "read_leases", "marks"):
            self.connection.executemany(f"delete from {name} where table_id = ?", [(i,) for i in ids])  # noqa: S608 (names above)

    def save_offsets(self, table_id: TableId, offsets: OffsetMap) -> None:
        self.connection.execute("insert or replace into offsets values (?, ?)", (table_id, _text(offsets.to_json())))

    def load_offsets(self) -> dict[TableId, OffsetMap]:
        rows = self.connection.execute("select table_id, body from offsets")
        return {TableId(t): OffsetMap.from_json(json.loads(b)) for t, b in rows}

    # ---- jobs ----
    def save_job(self, name: JobName, body: dict[str, Any]) -> None:
        self.connection.execute("insert or replace into jobs values (?, ?)", (name, _text(body)))

    def load_jobs(self) -> dict[JobName, dict[str, Any]]:
        return {JobName(n): json.loads(b) for n, b in self.connection.execute("select name, body from jobs")}

    def forget_job(self, name: JobName) -> None:
        self.connection.execute("delete from jobs where name = ?", (name,))

    # ---- ledger ----
    def append_ledger(self, entries: Sequence[LedgerEntry]) -> None:
        self.connection.executemany(
            "insert into ledger (table_id, generation, bucket, start, stop, round_id, snapshot_id, epoch, job, kind, "
            "rows, committed_at_ms)"
            " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    e.table_id,
                    e.generation,
                    str(e.bucket),
                    e.range.start,
                    e.range.stop,
                    e.round_id,
                    e.snapshot_id,
                    e.epoch,
                    e.job,
                    e.kind,
                    e.rows,
                    e.committed_at_ms,
                )
                for e in entries
            ],
        )

    def load_ledger(
        self, table_id: TableId, *, limit: int | None = None, before: int | None = None
    ) -> list[tuple[int, LedgerEntry]]:
        """(number, entry), oldest first; with `limit` the newest so many below number `before`."""
        rows = self.connection.execute(
            "select * from (select * from ledger where table_id = ? and seq < ? order by seq desc limit ?) order by "
            "seq",
            (table_id, before if before is not None else 2**62, -1 if limit is None else limit),
        )
        return [(row[0], _ledger_entry(row)) for row in rows]

    def merge_ledger(self, before_ms: int) -> int:
        """Entries older than that become one per table, generation, bucket and kind, as long as their ranges touch."""
        groups = self.connection.execute(
            "select table_id, generation, bucket, kind from ledger where committed_at_ms < ? group by 1, 2, 3, 4 "
            "having count(*) > 1",
            (before_ms,),
        ).fetchall()
        merged = 0
        for group in groups:
            merged += self._merge_group(group, before_ms)
        self.connection.execute("delete from known_rounds where at_ms < ?", (before_ms,))
        return merged

    def _merge_group(self, group: tuple[str, int, str, str], before_ms: int) -> int:
        rows = self.connection.execute(
            "select seq, start, stop, rows from ledger where table_id = ? and generation = ? and bucket = ? and kind "
            "= ?"
            " and committed_at_ms < ? order by start",
            (*group, before_ms),
        ).fetchall()
        merged = 0
        keep, start, stop, count = rows[0]
        for seq, nstart, nstop, ncount in rows[1:]:
            if nstart == stop:
                stop, count, merged = nstop, None if count is None or ncount is None else count + ncount, merged + 1
                self.connection.execute("delete from ledger where seq = ?", (seq,))
                self.connection.execute(
                    "update ledger set start = ?, stop = ?, rows = ? where seq = ?", (start, stop, count, keep)
                )
            else:
                keep, start, stop, count = seq, nstart, nstop, ncount
        return merged

    def add_known_round(self, table_id: TableId, round_id: RoundId, at_ms: int) -> None:
        self.connection.execute("insert or ignore into known_rounds values (?, ?, ?)", (table_id, round_id, at_ms))

    def is_known_round(self, table_id: TableId, round_id: RoundId) -> bool:
        found = self.connection.execute(
            "select 1 from known_rounds where table_id = ? and round_id = ?", (table_id, round_id)
        ).fetchone()
        return found is not None

    def set_intent_state(self, round_id: RoundId, state: str) -> None:
        self.connection.execute("update intents set state = ? where round_id = ?", (state, round_id))

    # ---- rounds ----
    def append_round(self, round_id: str | None, table_id: TableId, ended_at_ms: int, body: dict[str, Any]) -> None:
        self.connection.execute(
            "insert into rounds (round_id, table_id, ended_at_ms, body) values (?, ?, ?, ?)",
            (round_id, table_id, ended_at_ms, _text(body)),
        )

    def load_rounds(self, table_id: TableId | None = None, *, limit: int = 100) -> list[dict[str, Any]]:
        """Newest first."""
        where, values = ("where table_id = ?", [table_id]) if table_id is not None else ("", [])
        rows = self.connection.execute(f"select body from rounds {where} order by seq desc limit ?", (*values, limit))  # noqa: S608
        return [json.loads(b) for (b,) in rows]

    def prune_rounds(self, kept: int) -> None:
        self.connection.execute("delete from rounds where seq <= (select max(seq) from rounds) - ?", (kept,))

    def size_bytes(self) -> int:
        pages = self.connection.execute("pragma page_count").fetchone()[0]
        return int(pages * self.connection.execute("pragma page_size").fetchone()[0])


def _ledger_entry(row: tuple[Any, ...]) -> LedgerEntry:
    _, table_id, generation, bucket, start, stop, round_id, snapshot_id, epoch, job, kind, rows, at = row
    return LedgerEntry(
        table_id=TableId(table_id),
        bucket=Bucket.parse(bucket),
        range=OffsetRange(start, stop),
        round_id=RoundId(round_id),
        snapshot_id=None if snapshot_id is None else SnapshotId(snapshot_id),
        epoch=Epoch(epoch),
        job=JobName(job),
        kind=LedgerKind(kind),
        rows=rows,
        generation=generation,
        committed_at_ms=at,
    )


def _add_columns(connection: sqlite3.Connection, table: str, columns: dict[str, str]) -> None:
    """Those that a file of an older version does not have."""
    known = {row[1] for row in connection.execute(f"pragma table_info({table})")}
    for name in columns.keys() - known:
        connection.execute(f"alter table {table} add column {name} {columns[name]}")


def _text(body: Any) -> str:
    return json.dumps(body, separators=(",", ":"))
