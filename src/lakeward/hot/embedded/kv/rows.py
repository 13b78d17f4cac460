# SPDX-License-Identifier: Apache-2.0
"""Checks rows and keys that come in, and brings them into the table's column order and types. Nothing is
stored before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakeward.errors import InvalidRows
from lakeward.hot.embedded.kv.changes import Mask
from lakeward.model import cast_values, default_scalar, find_nested_null, missing_values


def align_rows(
    table: str, schema: pa.Schema, batch: pa.RecordBatch, named: Sequence[str] | None, primary_key: Sequence[str]
) -> pa.RecordBatch:
    """The batch with the schema's columns (`named`: those and the key), in order; a missing one has its default."""
    for name in (*batch.schema.names, *(named or ())):
        if name not in schema.names:
            raise InvalidRows(
                table=table, row=0, column=name, reason=f"no such column; there are {', '.join(schema.names)}"
            )
    expected_names = [n for n in schema.names if named is None or n in named or n in primary_key]
    fields = [schema.field(n) for n in expected_names]
    return pa.RecordBatch.from_arrays(
        [_column(table, f, batch, named is not None) for f in fields], schema=pa.schema(fields)
    )


def align_keys(table: str, schema: pa.Schema, batch: pa.RecordBatch, primary_key: Sequence[str]) -> pa.RecordBatch:
    """The key columns of the batch; others it may have are left out."""
    fields = [schema.field(n) for n in primary_key]
    return pa.RecordBatch.from_arrays([_column(table, f, batch, True) for f in fields], schema=pa.schema(fields))


def check_not_null(table: str, field: pa.Field, column: pa.Array) -> pa.Array:
    """The column, which holds no null where its field forbids one. Raises `InvalidRows`."""
    if not field.nullable and column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise InvalidRows(table=table, row=row, column=field.name, reason="null in a NOT NULL column")
    if (nested := find_nested_null(column)) is not None:
        raise InvalidRows(
            table=table, row=nested, column=field.name, reason=f"a null inside, which {field.type} forbids"
        )
    return column


def check_others_nullable(table: str, schema: pa.Schema, others: Sequence[str], absent: Mask) -> None:
    """A partial update of a key that is not there gives the other columns their default or NULL: NOT NULL ones without
    a default refuse it."""
    if not absent.any():
        return
    for name in others:
        if not schema.field(name).nullable and not default_scalar(schema.field(name)).is_valid:
            reason = "the key is not there yet and the update names no value for this NOT NULL column"
            raise InvalidRows(table=table, row=int(np.argmax(absent)), column=name, reason=reason)


def _column(table: str, field: pa.Field, batch: pa.RecordBatch, must_be_there: bool) -> pa.Array:
    at = batch.schema.get_field_index(field.name)
    if at < 0:
        has_value = field.nullable or default_scalar(field).is_valid
        if must_be_there or not has_value:
            raise InvalidRows(table=table, row=0, column=field.name, reason="the column is missing")
        return missing_values(field, batch.num_rows)
    column = batch.column(at)
    if column.type == field.type:
        return check_not_null(table, field, column)
    try:
        return check_not_null(table, field, cast_values(column, field.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRows(
            table=table, row=0, column=field.name, reason=f"{column.type} is no {field.type}: {error}"
        ) from error
