# SPDX-License-Identifier: Apache-2.0
"""Rows of a put brought to the stored schema, or refused naming row and column. Works on whole columns."""

from __future__ import annotations

import pyarrow as pa

from lakeward.errors import InvalidRows
from lakeward.hot.embedded.kv.rows import check_not_null
from lakeward.model import missing_values


def conform(batch: pa.RecordBatch, schema: pa.Schema, table: str) -> pa.RecordBatch:
    """`batch` with exactly the columns of `schema`: in its order, missing ones with their default. Raises
    `InvalidRows`.
    """
    if batch.schema.equals(schema):
        for at, field in enumerate(schema):
            if not field.nullable or field.type.num_fields:
                check_not_null(table, field, batch.column(at))
        return batch
    if unknown := [n for n in batch.schema.names if schema.get_field_index(n) < 0]:
        raise InvalidRows(
            table=table, row=0, column=unknown[0], reason=f"no such column; there are {', '.join(schema.names)}"
        )
    return pa.RecordBatch.from_arrays([_column(batch, f, table) for f in schema], schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field, table: str) -> pa.Array:
    at = batch.schema.get_field_index(field.name)
    if at < 0:
        values = missing_values(field, batch.num_rows)
        if not field.nullable and values.null_count == len(values):
            raise InvalidRows(
                table=table, row=0, column=field.name, reason="the column is missing and must not be null"
            )
        return values
    column = batch.column(at)
    if column.type != field.type:
        raise InvalidRows(
            table=table, row=0, column=field.name, reason=f"type {column.type} came, {field.type} is stored"
        )
    return check_not_null(table, field, column)
