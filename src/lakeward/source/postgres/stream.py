# SPDX-License-Identifier: Apache-2.0
"""Changes that Postgres streams from a slot, as groups of whole transactions."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from lakeward.errors import LakewardError
from lakeward.protocol.sources import SourceLag
from lakeward.source.changes import UNSET, ChangedTable, ChangeSet, Row, Stored
from lakeward.source.postgres.origin import Origin, lsn_text, parse_lsn
from lakeward.source.postgres.pgoutput import Begin, Commit, Relation, RowChange, Truncate, decode
from lakeward.source.postgres.tables import IngestedTable, PgTables
from lakeward.spi.source import SourceGroup, SourceRun, State, Step

FLUSH_S, FLUSH_BYTES, FLUSH_ROWS = 0.5, 8 << 20, 50_000
SPOOL_BYTES = 64 << 20
"""Changes of one transaction that are kept as Python values before they become steps."""

IDLE_S = 10.0
"""How often an idle stream stores and confirms its position, so that Postgres can remove log of other tables."""

LOOK_S, TABLES_S = 5.0, 30.0
NOW = "now"
_POSTGRES_EPOCH_S = 946_684_800


class ChangeStream:
    """One connection to one slot, from `lsn` on. `tables` by qualified name; `state_at` makes the state of a
    position."""

    def __init__(
        self,
        origin: Origin,
        tables: PgTables,
        states: dict[str, IngestedTable],
        run: SourceRun,
        slot: str,
        lsn: int,
        state_at: Callable[[int], State],
        phase: Callable[[int], str],
    ) -> None:
        self.origin, self.tables, self.states, self.run = origin, tables, states, run
        self.lsn, self._state_at, self._phase, self._slot = lsn, state_at, phase, slot
        self._relations: dict[int, tuple[str, ChangedTable, list[int] | None]] = {}
        self._changes, self._spooled = ChangeSet(), list[Step]()
        self._begin: Begin | None = None
        self._read_lsn = self._confirmed = lsn
        self._since = self._stored_at = time.monotonic()
        self._looked_at, self._lag = 0.0, SourceLag()
        self._last_commit_s = 0.0
        self._target = origin.position() if run.until_idle else None
        self._connection = origin.replication()
        self._cursor = self._connection.cursor()
        with origin.translated():
            self._cursor.start_replication(
                slot_name=slot,
                start_lsn=lsn,
                decode=False,
                status_interval=10,
                options={"proto_version": "1", "publication_names": slot},
            )

    def close(self) -> None:
        with suppress(Exception):
            self._cursor.close()
        self._connection.close()

    def groups(self, until: float) -> Iterator[SourceGroup]:
        """Ends at a commit once the run stops or `until` (monotonic) is over."""
        while True:
            with self.origin.translated():
                message = self._cursor.read_message()
            if message is None:
                yield from self._idle()
                if self._begin is None and self._is_done(until):
                    break
                continue
            decoded = decode(message.payload)
            if isinstance(decoded, Begin):
                yield from self._held_before(decoded.commit_lsn)
                if self._is_done(until):
                    break
                self._begin = decoded
            else:
                yield from self._take(decoded)
        yield from self._flush()

    def is_outdated(self) -> bool:
        """A table's rows must be read again before the stream goes on."""
        return any(not state.done for state in self.states.values())

    def _is_done(self, until: float) -> bool:
        if self.is_outdated():
            return True
        is_idle = self._target is not None and self._read_lsn >= self._target
        return is_idle or self.run.is_stopping() or self.run.status.source.paused or time.monotonic() >= until

    def _take(self, message: Any) -> Iterator[SourceGroup]:
        if isinstance(message, RowChange):
            relation = self._relations.get(message.relation_id)
            if relation is not None:
                self._change(relation[1], message if relation[2] is None else message.only(relation[2]))
            if self._changes.bytes > SPOOL_BYTES:
                self._spooled += self._changes.steps()
        elif isinstance(message, Commit):
            self._changes.end_transaction()
            self._read_lsn = message.end_lsn
            self._last_commit_s = _POSTGRES_EPOCH_S + (self._begin.commit_time_us if self._begin else 0) / 1e6
            self._begin = None
            if self._is_due():
                yield from self._flush()
        elif isinstance(message, Relation):
            yield from self._relation(message)
        elif isinstance(message, Truncate):
            for relation_id in message.relation_ids:
                if relation_id in self._relations:
                    self._changes.truncate(self._relations[relation_id][1])

    def _change(self, table: ChangedTable, change: RowChange) -> None:
        if change.new is None:
            assert change.old is not None
            self._changes.delete(table, table.key_of(change.old))
            return
        row: Row = change.new
        if change.old is not None and not change.is_insert:
            old_key = table.key_of(change.old)
            if change.is_full and UNSET in row:
                row = _filled(row, change.old)
            if old_key != table.key_of(row):
                row = self._moved(table, old_key, row) if UNSET in row else row
                self._changes.delete(table, old_key)
        self._changes.upsert(table, row, change.size)

    def _moved(self, table: ChangedTable, old_key: tuple[Any, ...], row: Row) -> Row:
        """The values that an update of the key did not send, from the row under its old key."""
        is_changed, before = self._changes.find(table, old_key)
        if is_changed and before is not None and UNSET not in before:
            return _filled(row, before)
        if not self._spooled:
            stored = self._stored_row(table, old_key)
            if stored is not None:
                full_row = stored if before is None else _filled(before, stored)
                return _filled(row, full_row)
        raise self.origin.stopped(
            f"LSN {lsn_text(self._begin.commit_lsn if self._begin else 0)}, table {table.path}",
            f"the key {old_key} changed together with values that Postgres did not send, and its old row is not stored",
            "Set REPLICA IDENTITY FULL for the table in Postgres, and run `lakeward ingest` once with --resnapshot",
        )

    def _stored_row(self, table: ChangedTable, key: tuple[Any, ...]) -> Row | None:
        keys = table.to_arrow(table.key, [key])
        found = self.run.client.table(str(table.path)).lookup(keys)
        if not found.num_rows:
            return None
        row = found.to_pylist()[0]
        return [Stored(row[name]) for name in table.columns]

    def _relation(self, relation: Relation) -> Iterator[SourceGroup]:
        qualified = f"{relation.schema}.{relation.table}"
        state = self.states.get(qualified)
        if state is None:
            return
        table = self.origin.table(qualified)
        if table is None:  # it is dropped by now, and with it its rows
            self._relations.pop(relation.relation_id, None)
            return
        change = self.tables.plan_changes(table, state)
        if change is not None:
            yield from self._flush()
            change()
        columns = self.tables.relation_columns(relation, table, state)
        mapped = [c for c in columns if c is not None]
        key = self.run.client.table(state.to).info.descriptor.primary_key
        if missing := set(key) - {c.name for c in mapped}:
            raise self.origin.stopped(
                f"table {qualified}",
                f"key column {missing.pop()} is gone",
                f"Drop {state.to} and the source, and ingest again",
            )
        places = None if len(mapped) == len(columns) else [i for i, c in enumerate(columns) if c is not None]
        changed = self.tables.changed_table(qualified, state.to, mapped, key)
        self._relations[relation.relation_id] = qualified, changed, places

    # ---- when a group ends -----------------------------------------------------------------------------------------
    def _is_due(self) -> bool:
        changes = self._changes
        is_large = changes.bytes >= FLUSH_BYTES or changes.rows >= FLUSH_ROWS or changes.is_due or bool(self._spooled)
        return is_large or time.monotonic() - self._since >= FLUSH_S

    def _flush(self) -> Iterator[SourceGroup]:
        """Yields the changes up to the last commit, and those of a transaction whose columns change in its middle."""
        has_rows = bool(self._spooled) or not self._changes.is_empty
        if has_rows or self._read_lsn > self.lsn:
            steps = [*self._spooled, *self._changes.steps()]
            self._spooled = []
            lsn = self._read_lsn
            yield SourceGroup(state=self._state_at(lsn), position=lsn_text(lsn), steps=steps)
            self.lsn, self._stored_at = lsn, time.monotonic()
            self._confirm()
        self._since = time.monotonic()

    def _confirm(self) -> None:
        with self.origin.translated():
            self._cursor.send_feedback(write_lsn=self.lsn, flush_lsn=self.lsn, apply_lsn=self.lsn, force=True)

    def _idle(self) -> Iterator[SourceGroup]:
        """Nothing to read now: everything that committed below the log's end that Postgres names was sent."""
        end = int(self._cursor.wal_end or 0)
        if self._begin is None:
            self._read_lsn = max(self._read_lsn, end)
            waited_s = time.monotonic() - (self._stored_at if self._changes.is_empty else self._since)
            if waited_s >= (IDLE_S if self._changes.is_empty else FLUSH_S):
                yield from self._flush()
            yield from self._held_before(end)
        self._report()
        select.select([self._cursor], [], [], 0.05 if not self._changes.is_empty else 0.2)

    def _held_before(self, lsn: int) -> Iterator[SourceGroup]:
        """Waits while people hold the source at a position below this commit."""
        status = self._report()
        hold = status.hold_at
        while hold is not None and (hold == NOW or parse_lsn(hold) <= lsn):
            yield from self._flush()
            held_at = lsn_text(self.lsn) if hold == NOW else hold
            status = self._report(held_at=held_at)
            if status.hold_at == hold:
                time.sleep(0.1)
                self._confirm()
            hold = status.hold_at
            if self.run.is_stopping():
                return

    def _report(self, held_at: str | None = None) -> Any:
        now = time.monotonic()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self._lag = self._measure()
        return self.run.report(self._phase(self.lsn), lsn_text(self.lsn), self._lag, held_at)

    def _measure(self) -> SourceLag:
        with suppress(LakewardError):
            slot = self.origin.slot(self._slot)
            current = self.origin.position()
            behind = max(0, current - max(self.lsn, self._read_lsn if self._changes.is_empty else self.lsn))
            seconds = max(0.0, time.time() - self._last_commit_s) if behind and self._last_commit_s else 0.0
            return SourceLag(
                bytes=behind, seconds=round(seconds, 3), slot_bytes=None if slot is None else slot.retained_bytes
            )
        return self._lag


def _filled(row: Row, before: Row) -> Row:
    """The row with the values that it does not carry taken from the one before."""
    return [old if new is UNSET else new for old, new in zip(before, row, strict=True)]
