# SPDX-License-Identifier: Apache-2.0
"""The coordinator's durable state in SQLite (WAL). Called under the board's lock; what it wrote is on disk when it
returns.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lakeward.coordinator.state.readlease import Mark, ReadLease
from lakeward.coordinator.state.schema import SIDE_TABLES, bring_up_to_date
from lakeward.model import (
    Ballast,
    Bucket,
    Cut,
    CutSchedule,
    Epoch,
    ExpiringSnapshot,
    Intent,
    IntentState,
    JobName,
    LeaseId,
    LedgerEntry,
    LedgerKind,
    LeftOut,
    OffsetMap,
    OffsetRange,
    RoundId,
    SideId,
    SideName,
    SnapshotId,
    TableId,
    WorkKind,
)
from lakeward.protocol.codec import decode, encode, load_json
from lakeward.protocol.views import RoundStatus

_MOST = 2**63
_MOST_ADDED = 2**50
"""To a day's sum by one round, whatever a job says."""

_ODD_NUMBER = re.compile(r"[\s:,\[]-?(?:\d{18}|\d[\d.]*[eE]|NaN|Infinity)")
"""The start of a number that may be invalid. Few texts have one; checking every number would double the time."""


@dataclass(frozen=True, kw_only=True)
class StoredSide:
    id: SideId
    path: str
    state: str
    body: dict[str, Any]


@dataclass(frozen=True)
class DayCost:
    """Cost of one kind of work on one side in a day."""

    day: str
    path: str
    side: str
    kind: str
    rounds: int
    cpu_s: float
    bytes_written: int
    bytes_read: int
    rows: int


COST_DAYS = 400
"""Sums of so many days are kept."""


class StateStore:
    """One connection; the caller serialises. `transaction` groups what must be on disk together."""

    def __init__(self, connection: sqlite3.Connection, ballast: Ballast | None = None) -> None:
        self.connection = connection
        self._ballast = ballast
        self._depth = 0
        self.left_out = LeftOut("coordinator.db")

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
            [(*_key(r.id), r.path, r.state, now_ms, _text(r.body)) for r in rows],
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
            return StoredSide(id=_side(table_id, name), path=path, state=state, body=json.loads(text))

        def number(word: str) -> int | float | None:
            value = float(word) if any(c in word for c in ".eEnN") else int(word[:40])
            if abs(value) < _MOST:
                return value
            self.left_out.add(f"a number in the state of table {path}", word[:40])
            return None

        body = json.loads(text, parse_int=number, parse_float=number, parse_constant=number)
        return StoredSide(id=_side(table_id, name), path=path, state=state, body=body)

    def forget_sides(self, state: str, before_ms: int) -> None:
        """Removes every trace of sides that have been in this state since before that time."""
        gone = self.connection.execute(
            "select table_id, side from sides where state = ? and changed_at_ms < ?", (state, before_ms)
        ).fetchall()
        for name in (*SIDE_TABLES, "costs"):
            self.connection.executemany(f"delete from {name} where table_id = ? and side = ?", gone)  # noqa: S608 (names of ours)

    def save_offsets(self, side: SideId, offsets: OffsetMap) -> None:
        self.connection.execute(
            "insert or replace into offsets values (?, ?, ?)", (*_key(side), _text(offsets.to_json()))
        )

    def load_offsets(self) -> dict[SideId, OffsetMap]:
        rows = self.connection.execute("select table_id, side, body from offsets")
        return dict(self.left_out.sensible("offsets of table", rows, _stored_offsets))

    # ---- jobs ----
    def save_job(self, name: JobName, body: dict[str, Any]) -> None:
        self.connection.execute("insert or replace into jobs values (?, ?)", (name, _text(body)))

    def load_jobs(self) -> dict[JobName, dict[str, Any]]:
        rows = self.connection.execute("select name, body from jobs")
        return dict(self.left_out.sensible("job", rows, lambda row: (JobName(row[0]), load_json(row[1], "its record"))))

    def forget_job(self, name: JobName) -> None:
        self.connection.execute("delete from jobs where name = ?", (name,))

    # ---- ledger ----
    def append_ledger(self, entries: Sequence[LedgerEntry]) -> None:
        self.connection.executemany(
            "insert into ledger values (null, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", [_ledger_row(e) for e in entries]
        )

    def load_ledger(
        self, side: SideId, *, limit: int | None = None, before: int | None = None
    ) -> list[tuple[int, LedgerEntry]]:
        """(number, entry), oldest first; with `limit` the newest so many below number `before`."""
        rows = self.connection.execute(
            "select * from (select * from ledger where table_id = ? and side = ? and seq < ? order by seq desc limit ?)"
            " order by seq",
            (*_key(side), before if before is not None else 2**62, -1 if limit is None else limit),
        )
        return self.left_out.sensible("ledger entry", rows, lambda row: (row[0], _ledger_entry(row)))

    def merge_ledger(self, before_ms: int) -> int:
        """Entries older than that become one per side, generation, bucket and kind, as long as their ranges touch."""
        groups = self.connection.execute(
            "select table_id, side, generation, bucket, kind from ledger where committed_at_ms < ? "
            "group by 1, 2, 3, 4, 5 having count(*) > 1",
            (before_ms,),
        ).fetchall()
        merged = 0
        for group in groups:
            merged += self._merge_group(group, before_ms)
        self.connection.execute("delete from known_rounds where at_ms < ?", (before_ms,))
        return merged

    def _merge_group(self, group: tuple[str, str, int, str, str], before_ms: int) -> int:
        rows = self.connection.execute(
            "select seq, start, stop, rows from ledger where table_id = ? and side = ? and generation = ? "
            "and bucket = ? and kind = ? and committed_at_ms < ? order by start",
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

    def add_known_round(self, side: SideId, round_id: RoundId, at_ms: int) -> None:
        self.connection.execute(
            "insert or ignore into known_rounds values (?, ?, ?, ?)", (*_key(side), round_id, at_ms)
        )

    def is_known_round(self, side: SideId, round_id: RoundId) -> bool:
        row = self.connection.execute(
            "select 1 from known_rounds where table_id = ? and side = ? and round_id = ?", (*_key(side), round_id)
        ).fetchone()
        return row is not None

    # ---- intents ----
    def add_intent(self, intent: Intent) -> None:
        """The first of a round stays."""
        body = _text({"prefix": intent.prefix, "token": intent.token, "fence": intent.fence})
        key = _key(SideId(intent.table_id, intent.side))
        self.connection.execute(
            "insert or ignore into intents values (?, ?, ?, ?, ?, ?, ?)",
            (intent.round_id, *key, intent.kind, intent.recorded_at_ms, intent.state, body),
        )

    def set_intent_state(self, round_id: RoundId, state: IntentState, *, only: IntentState | None = None) -> None:
        """`only`: where it is in that state."""
        self.connection.execute(
            "update intents set state = ?1 where round_id = ?2 and (?3 is null or state = ?3)", (state, round_id, only)
        )

    def load_intents(self, side: SideId) -> list[Intent]:
        """Oldest first."""
        rows = self.connection.execute(
            "select round_id, kind, recorded_at_ms, state, body from intents where table_id = ? and side = ? "
            "order by recorded_at_ms",
            _key(side),
        )
        return self.left_out.sensible("intent of round", rows, lambda row: _intent(side, *row))

    def forget_intent(self, round_id: RoundId) -> None:
        self.connection.execute("delete from intents where round_id = ?", (round_id,))

    # ---- read leases and marks ----
    def save_read_lease(self, lease: ReadLease) -> None:
        self.connection.execute(
            "insert or replace into read_leases values (?, ?, ?, ?, ?, ?)",
            (lease.lease_id, *_key(lease.side), lease.snapshot_id, lease.ends_at_ms, _text(lease.offsets.to_json())),
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
            [(*_key(side), m.snapshot.snapshot_id, m.snapshot.trace, m.token) for m in marks],
        )

    def load_marks(self) -> list[tuple[SideId, Mark]]:
        rows = self.connection.execute("select table_id, side, snapshot_id, trace, token from marks")
        return [
            (_side(t, s), Mark(ExpiringSnapshot(snapshot_id=i, trace=trace), token)) for t, s, i, trace, token in rows
        ]

    def forget_marks(self, side: SideId, snapshots: Iterable[SnapshotId]) -> None:
        self.connection.executemany(
            "delete from marks where table_id = ? and side = ? and snapshot_id = ?",
            [(*_key(side), snapshot_id) for snapshot_id in snapshots],
        )

    # ---- cuts ----
    def save_cut(self, cut: Cut) -> None:
        body = _text(encode(cut))
        self.connection.execute("insert or replace into cuts values (?, ?, ?)", (cut.name, cut.created_at_ms, body))

    def load_cuts(self) -> list[Cut]:
        """Oldest first."""
        rows = self.connection.execute("select name, body from cuts order by created_at_ms, name")
        return self.left_out.sensible("cut", rows, lambda row: decode(Cut, json.loads(row[1])))

    def forget_cut(self, name: str) -> None:
        self.connection.execute("delete from cuts where name = ?", (name,))

    def save_cut_schedule(self, schedule: CutSchedule) -> None:
        row = schedule.name, _text(encode(schedule))
        self.connection.execute("insert or replace into cut_schedules values (?, ?)", row)

    def load_cut_schedules(self) -> list[CutSchedule]:
        rows = self.connection.execute("select name, body from cut_schedules order by name")
        return self.left_out.sensible("cut schedule", rows, lambda row: decode(CutSchedule, json.loads(row[1])))

    def forget_cut_schedule(self, name: str) -> None:
        self.connection.execute("delete from cut_schedules where name = ?", (name,))

    # ---- databases ----
    def save_database(self, name: str, lake: str | None) -> None:
        self.connection.execute("delete from databases where name = ?", (name,))
        if lake is not None:
            self.connection.execute("insert into databases values (?, ?)", (name, lake))

    def load_databases(self) -> dict[str, str]:
        """Name -> the lake of its new tables."""
        return dict(self.connection.execute("select name, lake from databases"))

    # ---- rounds ----
    def append_round(self, side: SideId, kind: WorkKind, round_id: str, ended_at_ms: int, body: dict[str, Any]) -> None:
        self.connection.execute(
            "insert into rounds values (null, ?, ?, ?, ?, ?, ?)",
            (round_id, *_key(side), kind, ended_at_ms, _text(body)),
        )

    def add_cost(self, side: SideId, ended: RoundStatus) -> None:
        """To the sums of its day, in UTC."""
        day = datetime.fromtimestamp(ended.ended_at_ms / 1000, UTC).date().isoformat()
        cost = (ended.phases.cpu_s, ended.bytes_written, ended.bytes_read, ended.rows)
        figures = (1, *(max(0, min(value, _MOST_ADDED)) for value in cost))
        names = ("rounds", "cpu_s", "bytes_written", "bytes_read", "rows")
        added = ", ".join(f"{name} = {name} + excluded.{name}" for name in names)
        self.connection.execute(
            f"insert into costs values (?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict do update set {added}",  # noqa: S608 (names above)
            (day, *_key(side), ended.kind, *figures),
        )

    def load_costs(self, days: int) -> list[DayCost]:
        """Costs of the newest days, of present and recently dropped tables; newest first."""
        rows = self.connection.execute(
            "select c.day, s.path, c.side, c.kind, c.rounds, c.cpu_s, c.bytes_written, c.bytes_read, c.rows "
            "from costs c join sides s using (table_id, side) "
            "where c.day > date((select max(day) from costs), ?) order by c.day desc, s.path, c.side, c.kind",
            (f"-{days} day",),
        )
        return [DayCost(*row) for row in rows]

    def load_rounds(
        self, side: SideId | None = None, kind: WorkKind | None = None, *, limit: int = 100
    ) -> list[RoundStatus]:
        """Newest first."""
        side_filter = {} if side is None else dict(zip(("table_id", "side"), _key(side), strict=True))
        side_filter |= {} if kind is None else {"kind": kind}
        where = " and ".join(f"{name} = :{name}" for name in side_filter) or "true"
        rows = self.connection.execute(
            f"select round_id, body from rounds where {where} order by seq desc limit :limit",  # noqa: S608 (names above)
            {**side_filter, "limit": limit},
        )
        return self.left_out.sensible("round", rows, lambda row: decode(RoundStatus, load_json(row[1], "its record")))

    def load_round_times(self, since_ms: int) -> list[tuple[TableId, SideName, int, int]]:
        """When rounds that wrote rows began and ended, oldest first."""
        rows = self.connection.execute(
            "select table_id, side, json_extract(body, '$.started_at_ms'), ended_at_ms from rounds "
            "where kind = 'tier' and ended_at_ms >= ? and json_extract(body, '$.rows') > 0 order by ended_at_ms",
            (since_ms,),
        )
        return [(TableId(row[0]), SideName.parse(row[1]), int(row[2] or row[3]), int(row[3])) for row in rows]

    def prune_rounds(self, kept: int) -> None:
        self.connection.execute("delete from rounds where seq <= (select max(seq) from rounds) - ?", (kept,))
        oldest = f"-{COST_DAYS} day"
        self.connection.execute("delete from costs where day < date((select max(day) from costs), ?)", (oldest,))

    def size_bytes(self) -> int:
        pages = self.connection.execute("pragma page_count").fetchone()[0]
        return int(pages * self.connection.execute("pragma page_size").fetchone()[0])


def _key(side: SideId) -> tuple[str, str]:
    return side.table_id, str(side.name)


def _side(table_id: str, name: str) -> SideId:
    return SideId(TableId(table_id), SideName.parse(name))


def _stored_offsets(row: tuple[str, str, str]) -> tuple[SideId, OffsetMap]:
    table_id, name, text = row
    return _side(table_id, name), OffsetMap.from_json(json.loads(text))


def _read_lease(row: tuple[str, str, str, str | None, int, str]) -> ReadLease:
    lease_id, table_id, name, snapshot_id, ends_at_ms, offsets = row
    return ReadLease(
        LeaseId(lease_id),
        _side(table_id, name),
        None if snapshot_id is None else SnapshotId(snapshot_id),
        ends_at_ms,
        OffsetMap.from_json(json.loads(offsets)),
    )


def _ledger_row(e: LedgerEntry) -> tuple[Any, ...]:
    key = _key(SideId(e.table_id, e.side))
    covered = (e.generation, str(e.bucket), e.range.start, e.range.stop)
    return (*key, *covered, e.round_id, e.snapshot_id, e.epoch, e.job, e.kind, e.rows, e.committed_at_ms)


def _ledger_entry(row: tuple[Any, ...]) -> LedgerEntry:
    _, table_id, side, generation, bucket, start, stop, round_id, snapshot_id, epoch, job, kind, rows, at = row
    return LedgerEntry(
        table_id=TableId(table_id),
        side=SideName.parse(side),
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


def _intent(side: SideId, round_id: str, kind: str, recorded_at_ms: int, state: str, body: str) -> Intent:
    facts = json.loads(body)
    return Intent(
        round_id=RoundId(round_id),
        table_id=side.table_id,
        side=side.name,
        prefix=facts["prefix"],
        token=facts["token"],
        fence=facts["fence"],
        recorded_at_ms=recorded_at_ms,
        kind=WorkKind(kind),
        state=IntentState(state),
    )


def _text(body: Any) -> str:
    return json.dumps(body, separators=(",", ":"))
