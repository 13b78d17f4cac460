# SPDX-License-Identifier: Apache-2.0
"""The coordinator's durable state in SQLite (WAL). Called under the board's lock; what it wrote is on disk when it
returns.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakeward.coordinator.state.readlease import Mark, ReadLease
from lakeward.coordinator.state.schema import SIDE_TABLES, bring_up_to_date
from lakeward.coordinator.state.storedrecords import (
    CutRecords,
    IntentRecords,
    LedgerRecords,
    RoundRecords,
    as_text,
    read_side,
    side_key,
)
from lakeward.model import Ballast, ExpiringSnapshot, JobName, LeaseId, LeftOut, OffsetMap, SideId, SnapshotId, TableId
from lakeward.protocol.codec import load_json

_MOST = 2**63
_ODD_NUMBER = re.compile(r"[\s:,\[]-?(?:\d{18}|\d[\d.]*[eE]|NaN|Infinity)")
"""The start of a number that may be invalid. Few texts have one; checking every number would double the time."""


@dataclass(frozen=True, kw_only=True)
class StoredSide:
    id: SideId
    path: str
    state: str
    body: dict[str, Any]


class StateStore:
    """One connection; the caller serialises. `transaction` groups what must be on disk together."""

    def __init__(self, connection: sqlite3.Connection, ballast: Ballast | None = None) -> None:
        self.connection = connection
        self._ballast = ballast
        self._depth = 0
        self.left_out = LeftOut("coordinator.db")
        self.ledger = LedgerRecords(connection, self.left_out)
        self.intents = IntentRecords(connection, self.left_out)
        self.rounds = RoundRecords(connection, self.left_out)
        self.cuts = CutRecords(connection, self.left_out)

    @classmethod
    def open(cls, path: Path | str, *, sync: bool = True, ballast: Ballast | None = None) -> StateStore:
        """Opens or creates. Without `sync` a power cut may lose the newest transactions: for simulations. Raises
        `DataFolderVersion` for a file of a newer version."""
        connection = sqlite3.connect(str(path), isolation_level=None, check_same_thread=False)
        connection.execute("pragma journal_mode = wal")
        # FULL: an epoch that was handed out survives a power cut too.
        connection.execute(f"pragma synchronous = {'full' if sync else 'off'}")
        try:
            bring_up_to_date(connection, Path(path))
        except BaseException:
            connection.close()
            raise
        return cls(connection, ballast)

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
            with nullcontext() if self._ballast is None else self._ballast.writing():
                self.connection.execute("begin immediate")
                try:
                    yield
                    self.connection.execute("commit")
                except BaseException:
                    if self.connection.in_transaction:  # SQLite ends some by itself
                        self.connection.execute("rollback")
                    raise
        finally:
            self._depth -= 1

    # ---- meta ----
    def meta(self, key: str) -> str | None:
        row = self.connection.execute("select value from meta where key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def set_meta(self, key: str, value: str) -> None:
        self.connection.execute("insert or replace into meta values (?, ?)", (key, value))

    # ---- sides ----
    def save_sides(self, rows: Iterable[StoredSide], now_ms: int) -> None:
        self.connection.executemany(
            "insert or replace into sides values (?, ?, ?, ?, ?, ?)",
            [(*side_key(r.id), r.path, r.state, now_ms, as_text(r.body)) for r in rows],
        )

    def load_sides(self, table_id: TableId | None = None) -> dict[SideId, StoredSide]:
        """Stored sides of one table, or of all."""
        rows = self.connection.execute(
            "select table_id, side, path, state, body from sides where ?1 is null or table_id = ?1", (table_id,)
        )
        return {side.id: side for side in self.left_out.sensible("the state of table", rows, self._stored_side)}

    def _stored_side(self, row: tuple[str, str, str, str, str]) -> StoredSide:
        """Numbers that are none (a job was once believed) are as good as not stored; the rest counts."""
        table_id, name, path, state, text = row
        if _ODD_NUMBER.search(text) is None:
            return StoredSide(id=read_side(table_id, name), path=path, state=state, body=json.loads(text))

        def number(word: str) -> int | float | None:
            value = float(word) if any(c in word for c in ".eEnN") else int(word[:40])
            if abs(value) < _MOST:
                return value
            self.left_out.add(f"a number in the state of table {path}", word[:40])
            return None

        body = json.loads(text, parse_int=number, parse_float=number, parse_constant=number)
        return StoredSide(id=read_side(table_id, name), path=path, state=state, body=body)

    def forget_sides(self, state: str, before_ms: int) -> None:
        """Removes every trace of sides that have been in this state since before that time."""
        gone = self.connection.execute(
            "select table_id, side from sides where state = ? and changed_at_ms < ?", (state, before_ms)
        ).fetchall()
        for name in (*SIDE_TABLES, "costs"):
            self.connection.executemany(f"delete from {name} where table_id = ? and side = ?", gone)  # noqa: S608 (names of ours)

    def save_offsets(self, side: SideId, offsets: OffsetMap) -> None:
        self.connection.execute(
            "insert or replace into offsets values (?, ?, ?)", (*side_key(side), as_text(offsets.to_json()))
        )

    def load_offsets(self) -> dict[SideId, OffsetMap]:
        rows = self.connection.execute("select table_id, side, body from offsets")
        return dict(self.left_out.sensible("offsets of table", rows, _stored_offsets))

    # ---- jobs ----
    def save_job(self, name: JobName, body: dict[str, Any]) -> None:
        self.connection.execute("insert or replace into jobs values (?, ?)", (name, as_text(body)))

    def load_jobs(self) -> dict[JobName, dict[str, Any]]:
        rows = self.connection.execute("select name, body from jobs")
        return dict(self.left_out.sensible("job", rows, lambda row: (JobName(row[0]), load_json(row[1], "its record"))))

    def forget_job(self, name: JobName) -> None:
        self.connection.execute("delete from jobs where name = ?", (name,))

    # ---- read leases and marks ----
    def save_read_lease(self, lease: ReadLease) -> None:
        self.connection.execute(
            "insert or replace into read_leases values (?, ?, ?, ?, ?, ?)",
            (
                lease.lease_id,
                *side_key(lease.side),
                lease.snapshot_id,
                lease.ends_at_ms,
                as_text(lease.offsets.to_json()),
            ),
        )

    def load_read_leases(self) -> list[ReadLease]:
        rows = self.connection.execute(
            "select lease_id, table_id, side, snapshot_id, ends_at_ms, offsets from read_leases"
        )
        return self.left_out.sensible("read lease", rows, _read_lease)

    def forget_read_lease(self, lease_id: LeaseId) -> None:
        self.connection.execute("delete from read_leases where lease_id = ?", (lease_id,))

    def save_marks(self, side: SideId, marks: Iterable[Mark]) -> None:
        self.connection.executemany(
            "insert or replace into marks values (?, ?, ?, ?, ?)",
            [(*side_key(side), m.snapshot.snapshot_id, m.snapshot.trace, m.token) for m in marks],
        )

    def load_marks(self) -> list[tuple[SideId, Mark]]:
        rows = self.connection.execute("select table_id, side, snapshot_id, trace, token from marks")
        return [
            (read_side(t, s), Mark(ExpiringSnapshot(snapshot_id=i, trace=trace), token))
            for t, s, i, trace, token in rows
        ]

    def forget_marks(self, side: SideId, snapshots: Iterable[SnapshotId]) -> None:
        self.connection.executemany(
            "delete from marks where table_id = ? and side = ? and snapshot_id = ?",
            [(*side_key(side), snapshot_id) for snapshot_id in snapshots],
        )

    # ---- databases ----
    def save_database(self, name: str, lake: str | None) -> None:
        self.connection.execute("delete from databases where name = ?", (name,))
        if lake is not None:
            self.connection.execute("insert into databases values (?, ?)", (name, lake))

    def load_databases(self) -> dict[str, str]:
        """Name -> the lake of its new tables."""
        return dict(self.connection.execute("select name, lake from databases"))

    def size_bytes(self) -> int:
        pages = self.connection.execute("pragma page_count").fetchone()[0]
        return int(pages * self.connection.execute("pragma page_size").fetchone()[0])


def _stored_offsets(row: tuple[str, str, str]) -> tuple[SideId, OffsetMap]:
    table_id, name, text = row
    return read_side(table_id, name), OffsetMap.from_json(json.loads(text))


def _read_lease(row: tuple[str, str, str, str | None, int, str]) -> ReadLease:
    lease_id, table_id, name, snapshot_id, ends_at_ms, offsets = row
    return ReadLease(
        LeaseId(lease_id),
        read_side(table_id, name),
        None if snapshot_id is None else SnapshotId(snapshot_id),
        ends_at_ms,
        OffsetMap.from_json(json.loads(offsets)),
    )
