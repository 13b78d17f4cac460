# SPDX-License-Identifier: Apache-2.0
"""What a new table or column may not be, though tables that were made before the rule go on as they are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakeward.errors import InvalidTable
from lakeward.model.schema import SYSTEM_COLUMNS, Column
from lakeward.model.sidetable import CHANGELOG_SUFFIX
from lakeward.model.table import TableDescriptor
from lakeward.model.types import ArrayType, DataType, Float32Type, Float64Type, MapType, RowType, TimeType, VectorType

_NO_KEY = (Float32Type, Float64Type, ArrayType, MapType, RowType, VectorType)
MOST_COLUMNS = 5_000
"""Whoever asks for one row has all of them looked at."""

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
        if isinstance(kind, _NO_KEY):
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
    for name in (c.name for c in added if c.name in SYSTEM_COLUMNS):
        raise InvalidTable(table=table, field="column", value=name, reason="this name is a system column's")
    for column in added:
        _check_nested(table, column.name, column.type)


def warn_of_columns(columns: Iterable[Column]) -> tuple[str, ...]:
    """What some engines cannot read, though the table may have it; docs/readers.md has all of them."""
    names = [c.name for c in columns if _has_time(c.type)]
    words = "Spark and Java Iceberg have no TIME and read no column of a table that has one; PyIceberg, DuckDB and"
    return (f"column {', '.join(names)}: {words} DataFusion do",) if names else ()


def _has_time(kind: DataType) -> bool:
    match kind:
        case ArrayType():
            return _has_time(kind.element)
        case MapType():
            return _has_time(kind.key) or _has_time(kind.value)
        case RowType():
            return any(_has_time(f.type) for f in kind.fields)
    return isinstance(kind, TimeType)


def _check_nested(table: str, where: str, kind: DataType, *, is_inner: bool = False) -> None:
    if isinstance(kind, RowType):
        _check_names(table, f"field of {where}", [f.name for f in kind.fields], {})
        for field in kind.fields:
            _check_nested(table, f"{where}.{field.name}", field.type, is_inner=True)
    elif isinstance(kind, ArrayType):
        _check_nested(table, where, kind.element, is_inner=True)
    elif isinstance(kind, MapType):
        _check_nested(table, where, kind.key, is_inner=True)
        _check_nested(table, where, kind.value, is_inner=True)
    elif isinstance(kind, VectorType) and is_inner:
        reason = f"a {kind.sql} is a column of its own, not a part of one; inside of others an ARRAY<FLOAT> does"
        raise InvalidTable(table=table, field="column", value=where, reason=reason)


def _check_names(table: str, field: str, names: Iterable[str], folded: dict[str, str]) -> None:
    for name in names:
        if (other := folded.setdefault(name.lower(), name)) != name:
            reason = f"it differs from {other} in case alone, and Spark and other engines take both for one"
            raise InvalidTable(table=table, field=field, value=name, reason=reason)
