# SPDX-License-Identifier: Apache-2.0
"""Finds the table a request means: this very life of it, as of the schema that the peer knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from lakeward.errors import InvalidRequest, TableNotFound
from lakeward.hot.embedded.serve.engine import Engine
from lakeward.model.arrow import to_arrow_field, to_arrow_type
from lakeward.model.ids import TableId
from lakeward.model.schema import CHANGE_TYPE, OFFSET, PREV_OFFSET, TIMESTAMP, Column, Schema
from lakeward.model.table import TableInfo, TablePath

OFFSET_FIELD = pa.field(OFFSET, pa.int64(), nullable=False)
TIMESTAMP_FIELD = pa.field(TIMESTAMP, pa.timestamp("ms", tz="UTC"), nullable=False)
CHANGE_TYPE_FIELD = pa.field(CHANGE_TYPE, pa.int8(), nullable=False)
PREV_OFFSET_FIELD = pa.field(PREV_OFFSET, pa.int64())


def find_table(engine: Engine, path: TablePath, table_id: TableId | None) -> TableInfo:
    """Raises `TableNotFound`, also when the table was dropped and made again since the peer looked."""
    table = engine.load_table(path)
    if table_id is not None and table.table_id != table_id:
        raise TableNotFound(
            table=f"{path} with id {table_id} (it was dropped; the one of that name now has id {table.table_id})"
        )
    return table


def as_of(table: TableInfo, schema_id: int, width: int) -> TableInfo:
    """The table as a peer with an older schema knows it. Columns are only ever added last, so a prefix is
    what it had.
    """
    schema = table.schema
    if schema_id == schema.schema_id:
        return table
    if not (0 < schema_id < schema.schema_id and 0 < width <= len(schema.columns)):
        raise InvalidRequest(
            what=f"schema {schema_id} with {width} columns",
            reason=f"table {table.path} is at schema {schema.schema_id}",
        )
    older = Schema(columns=schema.columns[:width], schema_id=schema_id)
    return table.with_descriptor(replace(table.descriptor, schema=older))


def log_schema(table: TableInfo, columns: tuple[str, ...] | None) -> pa.Schema:
    """What a log read of these columns looks like."""
    system = [OFFSET_FIELD, TIMESTAMP_FIELD, CHANGE_TYPE_FIELD, *([PREV_OFFSET_FIELD] if table.is_pk else [])]
    return pa.schema([*map(to_arrow_field, _columns(table, columns)), *system])


def snapshot_schema(table: TableInfo, columns: tuple[str, ...] | None) -> pa.Schema:
    return pa.schema([*map(to_arrow_field, _columns(table, columns)), OFFSET_FIELD, TIMESTAMP_FIELD])


def row_schema(table: TableInfo, columns: tuple[str, ...] | None = None) -> pa.Schema:
    """What a put's batches look like: plain fields, as clients of any language make them; nulls are checked
    by value.
    """
    return pa.schema([pa.field(c.name, to_arrow_type(c.type)) for c in _columns(table, columns)])


def _columns(table: TableInfo, columns: tuple[str, ...] | None) -> Sequence[Column]:
    return table.schema.columns if columns is None else [table.schema.column(name) for name in columns]
