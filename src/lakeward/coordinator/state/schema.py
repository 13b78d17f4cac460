# SPDX-License-Identifier: Apache-2.0
"""The coordinator's tables in SQLite, and what turns a file of an older version into one of today's."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

from lakeward.errors import DataFolderVersion
from lakeward.model import DEFAULT_SIDE, TIER

FORMAT_VERSION = 2

TABLES = """
create table if not exists meta (key text primary key, value text not null) without rowid;
create table if not exists sides (
  table_id text not null, side text not null, path text not null, state text not null,
  changed_at_ms integer not null, body text not null, primary key (table_id, side)) without rowid;
create table if not exists offsets (
  table_id text not null, side text not null, body text not null, primary key (table_id, side)) without rowid;
create table if not exists jobs (name text primary key, body text not null) without rowid;
create table if not exists rounds (
  seq integer primary key autoincrement, round_id text, table_id text not null, side text not null,
  kind text not null, ended_at_ms integer not null, body text not null);
create index if not exists rounds_by_side on rounds (table_id, side, seq);
create table if not exists ledger (
  seq integer primary key autoincrement, table_id text not null, side text not null, generation integer not null,
  bucket text not null, start integer not null, stop integer not null, round_id text not null, snapshot_id text,
  epoch integer not null, job text not null, kind text not null, rows integer, committed_at_ms integer not null);
create index if not exists ledger_by_side on ledger (table_id, side, seq);
create table if not exists known_rounds (
  table_id text not null, side text not null, round_id text not null, at_ms integer not null,
  primary key (table_id, side, round_id)) without rowid;
create table if not exists intents (
  round_id text primary key, table_id text not null, side text not null, kind text not null,
  recorded_at_ms integer not null, state text not null, body text not null) without rowid;
create index if not exists intents_by_side on intents (table_id, side, recorded_at_ms);
create table if not exists read_leases (
  lease_id text primary key, table_id text not null, side text not null, snapshot_id text,
  ends_at_ms integer not null, offsets text not null) without rowid;
create table if not exists costs (
  day text not null, table_id text not null, side text not null, kind text not null, rounds integer not null,
  cpu_s real not null, bytes_written integer not null, bytes_read integer not null, rows integer not null,
  primary key (day, table_id, side, kind)) without rowid;
create table if not exists databases (name text primary key, lake text not null) without rowid;
create table if not exists cuts (
  name text primary key, created_at_ms integer not null, body text not null) without rowid;
create table if not exists cut_schedules (name text primary key, body text not null) without rowid;
create table if not exists marks (
  table_id text not null, side text not null, snapshot_id text not null, trace text not null, token text,
  primary key (table_id, side, snapshot_id)) without rowid;
"""

SIDE_TABLES = ("sides", "offsets", "rounds", "ledger", "known_rounds", "intents", "read_leases", "marks")
"""Tables whose rows belong to a side."""


def bring_up_to_date(connection: sqlite3.Connection, path: Path) -> None:
    """Makes the tables, or migrates those of an older version after a copy of the file was made beside it. All in one
    transaction: a crash leaves the old version whole. Raises `DataFolderVersion` for a newer one."""
    stored_version = _version(connection)
    if stored_version is not None and stored_version > FORMAT_VERSION:
        raise DataFolderVersion(folder=str(path), found=stored_version, known=FORMAT_VERSION)
    if stored_version is not None and stored_version < FORMAT_VERSION:
        _copy_aside(connection, path, stored_version)
    connection.execute("begin immediate")
    try:
        for step in range(FORMAT_VERSION if stored_version is None else stored_version, FORMAT_VERSION):
            MIGRATIONS[step](connection)
        _run(connection, TABLES)
        connection.execute("insert or replace into meta values ('format_version', ?)", (str(FORMAT_VERSION),))
    except BaseException:
        connection.execute("rollback")
        raise
    connection.execute("commit")


def _version(connection: sqlite3.Connection) -> int | None:
    """None: a new file."""
    if not _columns(connection, "meta"):
        return None
    row = connection.execute("select value from meta where key = 'format_version'").fetchone()
    return 1 if row is None else int(row[0])


def _copy_aside(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """`coordinator.db.format-1`: made once, whole when its name is there."""
    target = path.with_name(f"{path.name}.format-{version}")
    if target.exists():
        return
    half = target.with_name(target.name + ".tmp")
    half.unlink(missing_ok=True)
    connection.execute("vacuum into ?", (str(half),))
    with half.open("rb") as file:
        os.fsync(file.fileno())
    half.rename(target)


def _give_sides(connection: sqlite3.Connection) -> None:
    """1 -> 2: what was a table's is its only side's; what of it was of rounds is of the kind `tier`."""
    for name, columns in _ADDED_TO_MARKS.items():
        if name not in _columns(connection, "marks"):
            connection.execute(f"alter table marks add column {name} {columns}")
    copied_tables = ("tables", *SIDE_TABLES[1:])
    for name in copied_tables:
        connection.execute(f"alter table {name} rename to old_{name}")
    for index in ("rounds_by_table", "ledger_by_table", "intents_by_table"):
        connection.execute(f"drop index if exists {index}")
    _run(connection, TABLES)
    values = {"side": str(DEFAULT_SIDE), "kind": str(TIER)}
    _run(connection, _INTO_SIDES, values)
    for name in copied_tables:
        connection.execute(f"drop table old_{name}")


_ADDED_TO_MARKS = {"trace": "text not null default ''", "token": "text"}
"""Columns that the first files of version 1 did not have."""

_WORK = ("lease", "samples", "failures", "failures_in_a_row", "error", "retry_at_ms", "last_duration_ms", "last_finish")
_RENAMED = {"last_round": "token", "repair": "resync", "repair_offsets": "resync_offsets"}
_INTO_SIDES = f"""
insert into sides select table_id, :side, path, state, changed_at_ms, json_set(
    json_remove(body, {", ".join(f"'$.{name}'" for name in (*_WORK, *_RENAMED))}),
    {", ".join(f"'$.{new}', body -> '$.{old}'" for old, new in _RENAMED.items())},
    '$.works', json_object(:kind, json_object(
      'epoch', epoch, {", ".join(f"'{name}', body -> '$.{name}'" for name in _WORK)}))) from old_tables;
insert into offsets select table_id, :side, body from old_offsets;
insert into rounds select seq, round_id, table_id, :side, :kind, ended_at_ms, body from old_rounds;
insert into ledger select seq, table_id, :side, generation, bucket, start, stop, round_id, snapshot_id, epoch, job,
  kind, rows, committed_at_ms from old_ledger;
insert into known_rounds select table_id, :side, round_id, at_ms from old_known_rounds;
insert into intents select round_id, table_id, :side, body ->> '$.kind', recorded_at_ms, state, body from old_intents;
insert into read_leases select lease_id, table_id, :side, snapshot_id, ends_at_ms, offsets from old_read_leases;
insert into marks select table_id, :side, snapshot_id, trace, token from old_marks;
"""  # noqa: S608 (names above)

MIGRATIONS: Mapping[int, Callable[[sqlite3.Connection], None]] = {1: _give_sides}
"""Version -> what turns a file of that version into one of the next, inside a transaction."""


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"pragma table_info({table})")}


def _run(connection: sqlite3.Connection, statements: str, values: Mapping[str, str] | None = None) -> None:
    """One by one: `executescript` would end the transaction."""
    for statement in statements.split(";\n"):
        if statement.strip():
            connection.execute(statement, values or {})
