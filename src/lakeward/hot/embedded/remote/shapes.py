# SPDX-License-Identifier: Apache-2.0
"""Schemas of puts and reads that client and server share, and the kinds of puts that a table takes."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakeward.errors import InvalidRequest
from lakeward.model import SNAPSHOT_FIELDS, Column, TableInfo, log_fields, to_arrow_field, to_arrow_type
from lakeward.protocol.flight import PutKind


def log_schema(table: TableInfo, columns: tuple[str, ...] | None) -> pa.Schema:
    """Schema of a log read of these columns."""
    return pa.schema([*map(to_arrow_field, _columns(table, columns)), *log_fields(is_pk=table.is_pk)])


def snapshot_schema(table: TableInfo, columns: tuple[str, ...] | None) -> pa.Schema:
    return pa.schema([*map(to_arrow_field, _columns(table, columns)), *SNAPSHOT_FIELDS])


def row_schema(table: TableInfo, columns: tuple[str, ...] | None = None) -> pa.Schema:
    """Schema of a put's batches: plain fields, as clients of any language make them; nulls are checked by value."""
    return pa.schema([pa.field(c.name, to_arrow_type(c.type)) for c in _columns(table, columns)])


def _columns(table: TableInfo, columns: tuple[str, ...] | None) -> Sequence[Column]:
    return table.schema.columns if columns is None else [table.schema.column(name) for name in columns]


def check_put(table: TableInfo, kind: PutKind, columns: tuple[str, ...] | None) -> None:
    """Raises `InvalidRequest` when a table of this kind does not take such a put. Both sides ask it."""
    what = f"{kind} to {table.path}"
    if (kind is PutKind.APPEND) == table.is_pk:
        reason = "it has a primary key: upsert or delete" if table.is_pk else "it has no primary key: rows are appended"
        raise InvalidRequest(what=what, reason=reason)
    if columns is None:
        return
    if kind is not PutKind.UPSERT:
        raise InvalidRequest(what=what, reason="columns are named in a partial upsert only")
    missing = [name for name in table.descriptor.primary_key if name not in columns]
    if missing:
        raise InvalidRequest(what=what, reason=f"a partial upsert names all key columns; missing: {', '.join(missing)}")
