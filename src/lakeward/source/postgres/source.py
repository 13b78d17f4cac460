# SPDX-License-Identifier: Apache-2.0
"""A Postgres source that runs: the slot first, then a snapshot from its consistent point, then the stream."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from lakeward.source.postgres.origin import Origin, lsn_text, parse_lsn
from lakeward.source.postgres.plugin import RESNAPSHOT
from lakeward.source.postgres.snapshot import SnapshotReader
from lakeward.source.postgres.stream import TABLES_S, ChangeStream
from lakeward.source.postgres.tables import IngestedTable, PgTables
from lakeward.spi.source import Source, SourceGroup, SourceRun, State


class PostgresSource(Source):
    def __init__(self, config: Mapping[str, Any], dsn: str) -> None:
        self.config, self.origin = config, Origin("postgres", dsn)
        self._slot_connection: Any = None
        self._states: dict[str, IngestedTable] = {}
        self._body: dict[str, Any] = {}

    def close(self) -> None:
        self.origin.close()
        slot, self._slot_connection = self._slot_connection, None
        if slot is not None:
            slot.close()

    def drop(self, state: State) -> Sequence[str]:
        slot = state.get("slot")
        if slot is None:
            return ()
        done = [f"replication slot {slot} is dropped"] if self.origin.drop_slot(slot) else []
        self.origin.ask(f'DROP PUBLICATION IF EXISTS "{slot}"')
        return [*done, f"publication {slot} is dropped"]

    def read(self, state: State, run: SourceRun) -> Iterator[SourceGroup]:
        self.origin.source = run.name
        tables = PgTables(self.origin, run.client, self.config)
        system, exported = self.origin.check(), None
        if not state or state.get(RESNAPSHOT):
            exported = self._begin(system, run, tables, is_again=bool(state))
            yield self._group(int(self._body["lsn"]))
        else:
            self._body = {k: v for k, v in state.items() if k != "tables"}
            self._states = {name: IngestedTable(**body) for name, body in state["tables"].items()}
            self._check(system)
            self._find_new(tables)
        while not run.is_stopping() and not run.status.source.paused:
            yield from self._snapshot(run, tables, exported)
            exported = None
            if run.is_stopping() or run.status.source.paused:
                return
            with closing(self._stream(run, tables)) as stream:
                while not stream.is_outdated() and not self._find_new(tables):
                    yield from stream.groups(time.monotonic() + TABLES_S)
                    if stream.is_outdated():
                        break
                    if run.until_idle or run.is_stopping() or run.status.source.paused:
                        return

    # ---- the start ---------------------------------------------------------------------------------------------------
    def _begin(self, system: str, run: SourceRun, tables: PgTables, *, is_again: bool) -> str:
        """Creates publication and slot; the name of the snapshot that shows what is before the slot's first change."""
        names = self.origin.tables(self.config["tables"], self.config["exclude"])
        if not names:
            patterns = ", ".join(self.config["tables"])
            raise self.origin.stopped(
                "start", f"no table matches {patterns}", "Create one, or name others with --tables"
            )
        slot = f"lakeward_{run.status.source.source_id[:16]}"
        self._states = {name: tables.create(name) for name in names}
        for table in self._states.values():
            table.truncate = is_again
        self.origin.publish(slot, names)
        self.origin.drop_slot(slot)  # of a start that was cut off before its position was stored
        self._slot_connection = self.origin.replication()
        with self.origin.translated(), self._slot_connection.cursor() as cursor:
            cursor.execute(f'CREATE_REPLICATION_SLOT "{slot}" LOGICAL pgoutput EXPORT_SNAPSHOT')
            _, consistent, snapshot, _ = cursor.fetchone()
        lsn = parse_lsn(consistent)
        self._body = {"system": system, "slot": slot, "lsn": lsn, "catchup": lsn}
        return str(snapshot)

    def _check(self, system: str) -> None:
        """Raises `SourceStopped` where the slot cannot continue from the position."""
        slot, lsn = str(self._body["slot"]), int(self._body["lsn"])
        current = self.origin.slot(slot)
        again = "Run `lakeward ingest` once with --resnapshot: it reads every table again"
        if system != self._body["system"]:
            raise self.origin.stopped(lsn_text(lsn), "this is another Postgres cluster than before", again)
        if current is None:
            raise self.origin.stopped(lsn_text(lsn), f"replication slot {slot} is gone", again)
        if current.wal_status == "lost":
            reason = f"Postgres removed log that slot {slot} still needed (max_slot_wal_keep_size)"
            raise self.origin.stopped(lsn_text(lsn), reason, again)
        if current.confirmed > lsn:
            reason = (
                f"slot {slot} is at {lsn_text(current.confirmed)}, past the rows that are stored: "
                "the server was restored from an older backup, or the slot was moved"
            )
            raise self.origin.stopped(lsn_text(lsn), reason, again)

    def _find_new(self, tables: PgTables) -> bool:
        """Adds tables that match and are not here yet: they are published first and read then."""
        names = self.origin.tables(self.config["tables"], self.config["exclude"])
        new = [name for name in names if name not in self._states]
        for name in new:
            self._states[name] = tables.create(name)
        if new:
            self.origin.publish(str(self._body["slot"]), new)
        return bool(new)

    # ---- snapshot and stream -----------------------------------------------------------------------------------------
    def _snapshot(self, run: SourceRun, tables: PgTables, exported: str | None) -> Iterator[SourceGroup]:
        due = {name: state for name, state in self._states.items() if not state.done}
        if not due:
            return
        lsn = int(self._body["lsn"])
        with closing(SnapshotReader(self.origin, exported)) as reader:
            for name, state in due.items():
                table = self.origin.table(name)
                if table is None:
                    state.done = True
                    continue
                if (change := tables.plan_changes(table, state)) is not None:
                    change()
                changed = tables.changed_table(name, state.to, table.columns, table.key)
                for steps in reader.chunks(table, changed, state):
                    if exported is None:
                        self._body["catchup"] = max(int(self._body["catchup"]), self.origin.position())
                    yield self._group(lsn, steps, position=f"snapshot of {name}, {state.rows:,} rows")
                    run.report("snapshot", f"snapshot of {name}, {state.rows:,} rows")
                    if run.is_stopping() or run.status.source.paused:
                        return
        slot, self._slot_connection = self._slot_connection, None
        if slot is not None:
            slot.close()

    def _stream(self, run: SourceRun, tables: PgTables) -> ChangeStream:
        catchup = int(self._body["catchup"])
        return ChangeStream(
            self.origin,
            tables,
            self._states,
            run,
            str(self._body["slot"]),
            int(self._body["lsn"]),
            self._state_at,
            lambda lsn: "streaming" if lsn >= catchup else "catching up",
        )

    def _group(self, lsn: int, steps: Any = (), position: str = "") -> SourceGroup:
        return SourceGroup(state=self._state_at(lsn), position=position or lsn_text(lsn), steps=steps)

    def _state_at(self, lsn: int) -> State:
        self._body["lsn"] = lsn
        return {**self._body, "tables": {name: state.to_json() for name, state in self._states.items()}}
