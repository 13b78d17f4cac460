# SPDX-License-Identifier: Apache-2.0
"""Records of the coordinator's database that have a table of their own: ledger entries, intents, finished rounds with
their costs, and cuts. `StateStore` opens them and groups changes into transactions.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lakeward.model import (
    Bucket,
    Cut,
    CutSchedule,
    Epoch,
    Intent,
    IntentState,
    JobName,
    LedgerEntry,
    LedgerKind,
    LeftOut,
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

_MOST_ADDED = 2**50
"""Largest amount that one round adds to a day's sum, whatever a job reports."""


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


def side_key(side: SideId) -> tuple[str, str]:
    return side.table_id, str(side.name)


def read_side(table_id: str, name: str) -> SideId:
    return SideId(TableId(table_id), SideName.parse(name))


def as_text(body: Any) -> str:
    return json.dumps(body, separators=(",", ":"))


class _Records:
    def __init__(self, connection: sqlite3.Connection, left_out: LeftOut) -> None:
        self.connection, self.left_out = connection, left_out


class LedgerRecords(_Records):
    def append(self, entries: Sequence[LedgerEntry]) -> None:
        self.connection.executemany(
            "insert into ledger values (null, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", [_ledger_row(e) for e in entries]
        )

    def load(
        self, side: SideId, *, limit: int | None = None, before: int | None = None
    ) -> list[tuple[int, LedgerEntry]]:
        """(number, entry), oldest first; with `limit` the newest so many below number `before`."""
        rows = self.connection.execute(
            "select * from (select * from ledger where table_id = ? and side = ? and seq < ? order by seq desc limit ?)"
            " order by seq",
            (*side_key(side), before if before is not None else 2**62, -1 if limit is None else limit),
        )
        return self.left_out.sensible("ledger entry", rows, lambda row: (row[0], _ledger_entry(row)))

    def merge(self, before_ms: int) -> int:
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
            "insert or ignore into known_rounds values (?, ?, ?, ?)", (*side_key(side), round_id, at_ms)
        )

    def is_known_round(self, side: SideId, round_id: RoundId) -> bool:
        row = self.connection.execute(
            "select 1 from known_rounds where table_id = ? and side = ? and round_id = ?", (*side_key(side), round_id)
        ).fetchone()
        return row is not None


class IntentRecords(_Records):
    def add(self, intent: Intent) -> None:
        """The first of a round stays."""
        body = as_text({"prefix": intent.prefix, "token": intent.token, "fence": intent.fence})
        key = side_key(SideId(intent.table_id, intent.side))
        self.connection.execute(
            "insert or ignore into intents values (?, ?, ?, ?, ?, ?, ?)",
            (intent.round_id, *key, intent.kind, intent.recorded_at_ms, intent.state, body),
        )

    def set_state(self, round_id: RoundId, state: IntentState, *, only: IntentState | None = None) -> None:
        """`only`: where it is in that state."""
        self.connection.execute(
            "update intents set state = ?1 where round_id = ?2 and (?3 is null or state = ?3)", (state, round_id, only)
        )

    def load(self, side: SideId) -> list[Intent]:
        """Oldest first."""
        rows = self.connection.execute(
            "select round_id, kind, recorded_at_ms, state, body from intents where table_id = ? and side = ? "
            "order by recorded_at_ms",
            side_key(side),
        )
        return self.left_out.sensible("intent of round", rows, lambda row: _intent(side, *row))

    def forget(self, round_id: RoundId) -> None:
        self.connection.execute("delete from intents where round_id = ?", (round_id,))


class RoundRecords(_Records):
    """Finished rounds, and their costs per day."""

    def append(self, side: SideId, kind: WorkKind, round_id: str, ended_at_ms: int, body: dict[str, Any]) -> None:
        self.connection.execute(
            "insert into rounds values (null, ?, ?, ?, ?, ?, ?)",
            (round_id, *side_key(side), kind, ended_at_ms, as_text(body)),
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
            (day, *side_key(side), ended.kind, *figures),
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

    def load(self, side: SideId | None = None, kind: WorkKind | None = None, *, limit: int = 100) -> list[RoundStatus]:
        """Newest first."""
        side_filter = {} if side is None else dict(zip(("table_id", "side"), side_key(side), strict=True))
        side_filter |= {} if kind is None else {"kind": kind}
        where = " and ".join(f"{name} = :{name}" for name in side_filter) or "true"
        rows = self.connection.execute(
            f"select round_id, body from rounds where {where} order by seq desc limit :limit",  # noqa: S608 (names above)
            {**side_filter, "limit": limit},
        )
        return self.left_out.sensible("round", rows, lambda row: decode(RoundStatus, load_json(row[1], "its record")))

    def load_times(self, since_ms: int) -> list[tuple[TableId, SideName, int, int]]:
        """When rounds that wrote rows began and ended, oldest first."""
        rows = self.connection.execute(
            "select table_id, side, json_extract(body, '$.started_at_ms'), ended_at_ms from rounds "
            "where kind = 'tier' and ended_at_ms >= ? and json_extract(body, '$.rows') > 0 order by ended_at_ms",
            (since_ms,),
        )
        return [(TableId(row[0]), SideName.parse(row[1]), int(row[2] or row[3]), int(row[3])) for row in rows]

    def prune(self, kept: int) -> None:
        self.connection.execute("delete from rounds where seq <= (select max(seq) from rounds) - ?", (kept,))
        oldest = f"-{COST_DAYS} day"
        self.connection.execute("delete from costs where day < date((select max(day) from costs), ?)", (oldest,))


class CutRecords(_Records):
    def save(self, cut: Cut) -> None:
        body = as_text(encode(cut))
        self.connection.execute("insert or replace into cuts values (?, ?, ?)", (cut.name, cut.created_at_ms, body))

    def load(self) -> list[Cut]:
        """Oldest first."""
        rows = self.connection.execute("select name, body from cuts order by created_at_ms, name")
        return self.left_out.sensible("cut", rows, lambda row: decode(Cut, json.loads(row[1])))

    def forget(self, name: str) -> None:
        self.connection.execute("delete from cuts where name = ?", (name,))

    def save_schedule(self, schedule: CutSchedule) -> None:
        row = schedule.name, as_text(encode(schedule))
        self.connection.execute("insert or replace into cut_schedules values (?, ?)", row)

    def load_schedules(self) -> list[CutSchedule]:
        rows = self.connection.execute("select name, body from cut_schedules order by name")
        return self.left_out.sensible("cut schedule", rows, lambda row: decode(CutSchedule, json.loads(row[1])))

    def forget_schedule(self, name: str) -> None:
        self.connection.execute("delete from cut_schedules where name = ?", (name,))


def _ledger_row(e: LedgerEntry) -> tuple[Any, ...]:
    key = side_key(SideId(e.table_id, e.side))
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
