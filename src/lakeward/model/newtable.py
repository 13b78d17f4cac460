# SPDX-License-Identifier: Apache-2.0
"""Rules for new tables and columns; tables that were created before a rule stay as they are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import zip_longest

from lakeward.errors import InvalidTable
from lakeward.model.schema import SYSTEM_COLUMNS, Column
from lakeward.model.table import CHANGELOG_SUFFIX, TableDescriptor
from lakeward.model.types import DataType, RowType, TimeType, leaves, parts
from lakeward.model.types.typetable import row_of

MOST_COLUMNS = 5_000
"""Of a new table: every request for a row checks all columns."""

MOST_CHARACTERS = 255
"""Longest name of a new column or field: every schema, file footer and page contains it."""

MOST_COMMENT = 10_000
"""Characters of a new comment, for the same reason."""

FIXED = {"bucket.num": "bucket count", "bucket.key": "bucket key"}
"""Written like properties in Fluss's WITH, and no properties: as one of them they would change nothing."""

FIXED_FOREVER = (
    "fixed when the table is created; make a new table with another one and bring the rows over: "
    "lakeward read OLD --format arrow | lakeward write NEW - --format arrow"
)


def check_new_table(table: str, descriptor: TableDescriptor) -> None:
    """Raises `InvalidTable`."""
    for name in descriptor.primary_key:
        kind = descriptor.schema.column(name).type
        if not row_of(kind).primary_key:
            reason = f"a {kind} cannot be a key: it has no one spelling per value, and Iceberg allows none in a key"
            raise InvalidTable(table=table, field="primary key", value=name, reason=reason)
    for key in FIXED.keys() & descriptor.properties.keys():
        raise InvalidTable(
            table=table, field="property", value=key, reason=f"it is no property: give it as the table's {FIXED[key]}"
        )
    if table.endswith(CHANGELOG_SUFFIX):
        reason = f"names that end in {CHANGELOG_SUFFIX} are those of changelogs in lakes (table.datalake.changelog)"
        raise InvalidTable(table=table, field="name", value=table, reason=reason)
    check_new_columns(table, (), descriptor.schema.columns)


def check_new_columns(table: str, there: Sequence[Column], added: Sequence[Column]) -> None:
    """Names that engines which compare without case would take for one: the columns that are there clash only with
    `added` ones. Raises `InvalidTable`."""
    if len(there) + len(added) > MOST_COLUMNS and added:
        reason = f"a table takes up to {MOST_COLUMNS} columns"
        raise InvalidTable(table=table, field="columns", value=str(len(there) + len(added)), reason=reason)
    folded = {name.lower(): name for name in (*SYSTEM_COLUMNS, *(c.name for c in there))}
    _check_names(table, "column", [c.name for c in added], folded)
    for column in added:
        check_comment(table, column.name, column.comment)
    for name in (c.name for c in added if c.name in SYSTEM_COLUMNS):
        raise InvalidTable(table=table, field="column", value=name, reason="this name is a system column's")
    for column in added:
        _check_nested(table, column.name, column.type)


def check_column_default(column: Column) -> Column:
    """The column with its default in the one spelling of that value. Raises `InvalidRequest`."""
    if column.default is None:
        return column
    from lakeward.model.types.literal import check_default

    return replace(column, default=check_default(column.default, column.type, column.name))


def check_comment(table: str, column: str, comment: str | None) -> None:
    """Raises `InvalidTable`."""
    if len(comment or "") > MOST_COMMENT:
        reason = f"it has more than {MOST_COMMENT:,} characters"
        raise InvalidTable(table=table, field="comment", value=f"of column {column}", reason=reason)


def warn_of_columns(columns: Iterable[Column]) -> tuple[str, ...]:
    """Warns of columns that some engines cannot read, though the table may have them; docs/readers.md lists all of
    them."""
    names = [c.name for c in columns if any(isinstance(t, TimeType) for t in leaves(c.type))]
    words = "Spark and Java Iceberg have no TIME and read no column of a table that has one; PyIceberg, DuckDB and"
    return (f"column {', '.join(names)}: {words} DataFusion do",) if names else ()


def _check_nested(table: str, where: str, kind: DataType, *, is_inner: bool = False) -> None:
    if is_inner and not row_of(kind).is_part:
        reason = f"a {kind.sql} is a column of its own, not a part of one; inside of others an ARRAY<FLOAT> does"
        raise InvalidTable(table=table, field="column", value=where, reason=reason)
    names = [f.name for f in kind.fields] if isinstance(kind, RowType) else []
    _check_names(table, f"field of {where}", names, {})
    for part, name in zip_longest(parts(kind), names):
        _check_nested(table, where if name is None else f"{where}.{name}", part, is_inner=True)


def _check_names(table: str, field: str, names: Iterable[str], folded: dict[str, str]) -> None:
    for name in names:
        if len(name) > MOST_CHARACTERS:
            reason = f"a name has up to {MOST_CHARACTERS} characters"
            raise InvalidTable(table=table, field=field, value=f"{name[:40]}... ({len(name):,})", reason=reason)
        if (other := folded.setdefault(name.lower(), name)) != name:
            reason = f"it differs from {other} in case alone, and Spark and other engines take both for one"
            raise InvalidTable(table=table, field=field, value=name, reason=reason)
