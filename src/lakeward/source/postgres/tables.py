# SPDX-License-Identifier: Apache-2.0
"""The tables of a Postgres source: created from Postgres's catalog, and changed as Postgres changes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakeward.client import Client
from lakeward.errors import LakewardError, TableNotFound
from lakeward.model import Column, TablePath
from lakeward.source.changes import ChangedTable, Row
from lakeward.source.postgres.origin import Origin, PgTable
from lakeward.source.postgres.pgoutput import Relation
from lakeward.source.postgres.types import PgColumn, column_of, convert


@dataclass
class IngestedTable:
    """The part of a position that belongs to one table.

    `last`: the key of the last row of the snapshot that is stored. `numbers`: column -> attnum, by which a rename is
    recognized. `aliases`: old -> new name. `truncate`: its rows go before the first of the snapshot."""

    to: str
    done: bool = False
    last: list[str] | None = None
    rows: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    truncate: bool = False

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


class PgTables:
    """Creates and alters tables; makes the `ChangedTable`s that changes are collected for."""

    def __init__(self, origin: Origin, client: Client, config: Mapping[str, Any]) -> None:
        self.origin, self.client, self.config = origin, client, config
        self._types: dict[tuple[int, int], tuple[str, str, int, bool]] = {}

    def target(self, qualified: str) -> str:
        """`public.orders` in database `shop` is `shop.orders`, `sales.orders` is `shop.sales_orders`."""
        schema, _, name = qualified.partition(".")
        return f"{self.config['to']}.{name if schema == 'public' else f'{schema}_{name}'}"

    def columns(self, table: PgTable) -> list[Column]:
        return [self.column(table.qualified, c) for c in table.columns]

    def column(self, qualified: str, column: PgColumn) -> Column:
        return column_of(column, f"{qualified}.{column.name}" in self.config.get("text", ()))

    def create(self, qualified: str) -> IngestedTable:
        """Raises `SourceStopped` for a table without a key."""
        table = self.origin.table(qualified)
        if table is None:
            raise self.origin.stopped(f"table {qualified}", "it is gone", "Start the ingest process again")
        if not table.key:
            raise self.origin.stopped(
                f"table {qualified}",
                "it has no primary key, so its updates name no row",
                f"Add one, or choose a unique index (ALTER TABLE {qualified} REPLICA IDENTITY USING INDEX ...), "
                f"or leave the table out with --exclude {qualified}",
            )
        path, columns = self.target(qualified), self.columns(table)
        try:
            existing = self.client.table(path)
        except TableNotFound:
            existing = self.client.create_table(
                path,
                columns,
                primary_key=table.key,
                buckets=int(self.config.get("buckets", 1)),
                freshness=self.config.get("freshness"),
                if_not_exists=True,
            )
        if tuple(existing.info.descriptor.primary_key) != table.key:
            keys = ", ".join(existing.info.descriptor.primary_key) or "none"
            raise self.origin.stopped(
                f"table {qualified}",
                f"{path} exists with another primary key ({keys})",
                f"Drop it (`lakeward table drop {path}`), or ingest into another database with --to",
            )
        state = IngestedTable(to=path, numbers={c.name: c.number for c in table.columns})
        self._add_columns(path, [c for c in columns if c.name not in existing.info.schema.names])
        return state

    def changed_table(self, qualified: str, to: str, columns: Sequence[PgColumn], key: Sequence[str]) -> ChangedTable:
        made = {c.name: (self.column(qualified, c), c.base) for c in columns}
        source = self.origin.source

        def to_arrow(names: tuple[str, ...], rows: Sequence[Row]) -> pa.Table:
            cells = zip(*rows, strict=True) if rows else ([] for _ in names)
            arrays = [convert(source, qualified, *made[name], texts) for name, texts in zip(names, cells, strict=True)]
            return pa.table(arrays, names=list(names))

        return ChangedTable(TablePath.parse(to), tuple(c.name for c in columns), tuple(key), to_arrow)

    def relation_columns(self, relation: Relation, table: PgTable, state: IngestedTable) -> list[PgColumn | None]:
        """A column for each value of the relation's rows. The catalog may be past the relation: a column that it has
        under another name is found by the rename, one that was dropped is stored while the table has it, and one that
        is nowhere any more is None."""
        today = {c.name: c for c in table.columns}
        stored = self.client.show_table(state.to).schema.names
        columns: list[PgColumn | None] = []
        for c in relation.columns:
            name = c.name
            while name not in today and name in state.aliases:
                name = state.aliases[name]
            if name in today:
                columns.append(today[name])
            elif name in stored:
                type_name, base, modifier, is_array = self._type(c.type_oid, c.modifier)
                columns.append(PgColumn(name, 0, type_name, base, modifier, is_array, False))
            else:
                columns.append(None)
        return columns

    def plan_changes(self, table: PgTable, state: IngestedTable) -> Callable[[], None] | None:
        """How the table follows Postgres's catalog; None: it does. The plan alters the table and `state`, which is
        not `done` afterwards where Postgres changed rows without a word in its log."""
        numbers = {c.name: c.number for c in table.columns}
        info = self.client.show_table(state.to)
        names = info.schema.names
        missing = [name for name in state.numbers if name not in numbers]
        added = [name for name in numbers if name not in state.numbers]
        renamed = {
            old: new
            for old in missing
            for new in added
            if numbers[new] == state.numbers[old] and new not in names and old in names
        }
        columns = self.columns(table)
        new_columns = [c for c in columns if c.name in added and c.name not in {*renamed.values(), *names}]
        stored = {renamed.get(c.name, c.name): c.type.with_nullable(True) for c in info.schema.columns}
        retyped = {
            c.name: str(kind) for c in columns if (kind := c.type.with_nullable(True)) != stored.get(c.name, kind)
        }
        if not (renamed or retyped or added or missing):
            return None

        def change() -> None:
            try:
                if renamed:
                    self.client.alter_table(state.to, rename=renamed)
                self._add_columns(state.to, new_columns)
                if retyped:
                    self.client.alter_table(state.to, widen=retyped)
            except LakewardError as error:
                if error.retryable:
                    raise
                raise self.origin.stopped(
                    f"table {table.qualified}",
                    f"its columns changed, and {state.to} cannot follow: {error}",
                    f"Drop {state.to} and the source, and ingest again; or change {state.to} by hand, and resume",
                ) from error
            filled = {c.name for c in table.columns if c.has_default or c.name in names}
            if retyped or filled & set(added) - set(renamed.values()):
                state.done, state.last = False, None
            state.numbers = numbers
            state.aliases = {**state.aliases, **renamed}

        return change

    def _add_columns(self, path: str, columns: Sequence[Column]) -> None:
        if columns:
            nullable = [Column(name=c.name, type=c.type.with_nullable(True)) for c in columns]
            self.client.alter_table(path, add_columns=nullable)

    def _type(self, oid: int, modifier: int) -> tuple[str, str, int, bool]:
        resolved = self._types.get((oid, modifier))
        if resolved is None:
            rows = self.origin.ask(_TYPE, {"oid": oid, "modifier": modifier})
            resolved = self._types[oid, modifier] = rows[0] if rows else ("text", "text", -1, False)
        return resolved


_TYPE = """
WITH RECURSIVE base AS (
    SELECT oid, typtype, typbasetype, NULL::int AS modifier FROM pg_type WHERE oid = %(oid)s
    UNION ALL
    SELECT t.oid, t.typtype, t.typbasetype, coalesce(b.modifier, nullif(d.typtypmod, -1))
    FROM base b JOIN pg_type d ON d.oid = b.oid JOIN pg_type t ON t.oid = d.typbasetype WHERE b.typtype = 'd')
SELECT format_type(%(oid)s, %(modifier)s), coalesce(e.typname, t.typname),
       coalesce(nullif(%(modifier)s, -1), base.modifier, -1), t.typcategory = 'A' AND t.typelem <> 0
FROM base JOIN pg_type t ON t.oid = base.oid LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
WHERE base.typtype <> 'd'
"""
