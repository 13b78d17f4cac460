# SPDX-License-Identifier: Apache-2.0
"""Connections to Postgres, and what a source asks its catalog: tables, publication, slot, positions in the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import psycopg2
import psycopg2.extras
from psycopg2 import sql

from lakeward.errors import SourceStopped, SourceUnavailable
from lakeward.source.postgres.types import PgColumn

SETTINGS = (
    "-c timezone=UTC -c datestyle=ISO -c intervalstyle=iso_8601 -c extra_float_digits=3 -c bytea_output=hex "
    "-c client_encoding=UTF8 -c statement_timeout=0"
)
CONNECT_S = 10

_COLUMNS = """
WITH RECURSIVE base AS (
    SELECT t.oid, t.oid AS base, NULL::int AS modifier FROM pg_type t WHERE t.typtype <> 'd'
    UNION ALL
    SELECT t.oid, b.base, coalesce(b.modifier, nullif(t.typtypmod, -1))
    FROM pg_type t JOIN base b ON b.oid = t.typbasetype WHERE t.typtype = 'd')
SELECT a.attname, a.attnum, format_type(a.atttypid, a.atttypmod), coalesce(e.typname, b.typname),
       coalesce(nullif(a.atttypmod, -1), base.modifier, eb.modifier, -1), b.typcategory = 'A' AND b.typelem <> 0,
       a.atthasdef OR a.atthasmissing OR a.attidentity <> ''
FROM pg_attribute a JOIN base ON base.oid = a.atttypid JOIN pg_type b ON b.oid = base.base
LEFT JOIN base eb ON eb.oid = b.typelem AND b.typcategory = 'A' LEFT JOIN pg_type e ON e.oid = eb.base
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attnum
"""
_KEY = """
SELECT a.attname FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k(attnum, place)
JOIN pg_attribute a ON a.attnum = k.attnum
WHERE i.indrelid = %s::regclass AND a.attrelid = i.indrelid
  AND i.indexrelid = (SELECT indexrelid FROM pg_index WHERE indrelid = %s::regclass AND (indisprimary OR indisreplident)
                      ORDER BY indisprimary DESC LIMIT 1)
  AND k.place <= i.indnkeyatts ORDER BY k.place
"""
_TABLES = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2
"""


@dataclass(frozen=True)
class PgTable:
    """`key`: the primary key, or the columns of the index that is the replica identity."""

    schema: str
    name: str
    columns: tuple[PgColumn, ...]
    key: tuple[str, ...]

    @property
    def qualified(self) -> str:
        return f"{self.schema}.{self.name}"

    def sql_name(self) -> sql.Composable:
        return sql.Identifier(self.schema, self.name)


@dataclass(frozen=True)
class SlotState:
    confirmed: int
    wal_status: str
    lag_bytes: int
    retained_bytes: int


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """Raises `ValueError`."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


class Origin:
    """One Postgres. Connections are made when first used; after `close` they are made again."""

    def __init__(self, source: str, dsn: str) -> None:
        self.source, self.dsn = source, dsn
        self._plain: Any = None

    @contextmanager
    def translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg2.OperationalError as error:
            self.close()
            raise SourceUnavailable(source=self.source, origin="Postgres", reason=_words(error)) from error
        except psycopg2.InterfaceError as error:
            self.close()
            raise SourceUnavailable(source=self.source, origin="Postgres", reason=_words(error)) from error
        except psycopg2.Error as error:
            if error.pgcode is None:  # no answer of Postgres: the connection broke under a stream
                self.close()
                raise SourceUnavailable(source=self.source, origin="Postgres", reason=_words(error)) from error
            raise self.stopped("Postgres", _words(error), "The message is Postgres's own; mend it there") from error

    def stopped(self, where: str, reason: str, advice: str) -> SourceStopped:
        return SourceStopped(source=self.source, where=where, reason=reason, advice=advice)

    def connect(self, **options: Any) -> Any:
        with self.translated():
            return psycopg2.connect(self.dsn, options=SETTINGS, connect_timeout=CONNECT_S, **options)

    def replication(self) -> Any:
        return self.connect(connection_factory=psycopg2.extras.LogicalReplicationConnection)

    def ask(self, query: str | sql.Composable, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        with self.translated():
            if self._plain is None:
                self._plain = self.connect()
                self._plain.autocommit = True
            with self._plain.cursor() as cursor:
                cursor.execute(query, values)
                return list(cursor.fetchall()) if cursor.description is not None else []

    def close(self) -> None:
        plain, self._plain = self._plain, None
        if plain is not None:
            plain.close()

    # ---- the catalog -----------------------------------------------------------------------------------------------
    def check(self) -> str:
        """The cluster's system identifier. Raises `SourceStopped` where it cannot replicate logically."""
        ((level,),) = self.ask("SHOW wal_level")
        if level != "logical":
            raise self.stopped(
                "start", f"wal_level is {level}", "Set wal_level = logical in postgresql.conf and restart Postgres"
            )
        ((identifier,),) = self.ask("SELECT system_identifier::text FROM pg_control_system()")
        return str(identifier)

    def tables(self, patterns: Sequence[str], exclude: Sequence[str]) -> list[str]:
        """Qualified names of tables that match one of the patterns; a partitioned table counts as one."""
        names = [f"{schema}.{table}" for schema, table in self.ask(_TABLES)]
        return [
            name
            for name in names
            if any(fnmatchcase(name, pattern if "." in pattern else f"public.{pattern}") for pattern in patterns)
            and not any(fnmatchcase(name, pattern) for pattern in exclude)
        ]

    def table(self, qualified: str) -> PgTable | None:
        schema, _, name = qualified.partition(".")
        quoted = f'"{schema}"."{name}"'
        if self.ask("SELECT to_regclass(%s)", (quoted,))[0][0] is None:
            return None
        key = tuple(row[0] for row in self.ask(_KEY, (quoted, quoted)))
        columns = tuple(_column(row, key) for row in self.ask(_COLUMNS, (quoted,)))
        return PgTable(schema, name, columns, key)

    def publish(self, publication: str, tables: Sequence[str]) -> None:
        """The publication has these tables, and those that it had."""
        name = sql.Identifier(publication)
        if not self.ask("SELECT 1 FROM pg_publication WHERE pubname = %s", (publication,)):
            self.ask(sql.SQL("CREATE PUBLICATION {} WITH (publish_via_partition_root = true)").format(name))
        query = "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s"
        published = {row[0] for row in self.ask(query, (publication,))}
        for table in tables:
            if table not in published:
                self.ask(
                    sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(name, sql.Identifier(*table.split(".", 1)))
                )

    def slot(self, slot: str) -> SlotState | None:
        query = (
            "SELECT confirmed_flush_lsn::text, coalesce(wal_status, ''), "
            "pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn), "
            "pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) FROM pg_replication_slots WHERE slot_name = %s"
        )
        for confirmed, status, lag, retained in self.ask(query, (slot,)):
            return SlotState(parse_lsn(confirmed or "0/0"), status, int(lag or 0), int(retained or 0))
        return None

    def drop_slot(self, slot: str) -> bool:
        if self.slot(slot) is None:
            return False
        query = (
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
            "WHERE slot_name = %s AND active_pid IS NOT NULL"
        )
        self.ask(query, (slot,))
        for _ in range(50):
            if not self.ask("SELECT active FROM pg_replication_slots WHERE slot_name = %s AND active", (slot,)):
                break
            self.ask("SELECT pg_sleep(0.1)")
        self.ask("SELECT pg_drop_replication_slot(%s)", (slot,))
        return True

    def position(self) -> int:
        return parse_lsn(self.ask("SELECT pg_current_wal_lsn()::text")[0][0])


def _column(row: tuple[Any, ...], key: Sequence[str]) -> PgColumn:
    name, number, type_name, base, modifier, is_array, has_default = row
    return PgColumn(name, number, type_name, base, modifier, is_array, has_default, name in key)


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())[:400] or type(error).__name__
