# SPDX-License-Identifier: Apache-2.0
"""Rows between files of a lake and readers and writers: fitted to today's columns, without deleted rows, and with the
system columns of a *clean* lake table, which has the user's columns alone.

A file of a clean log table says its bucket and its first and last offset outside its rows, in its format's own way.
A row's offset is its file's first one plus the row's position, where the file has no hole. What is not known is -1, as
it is in rows of Fluss's KV snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeward.errors import LakeSchemaBroken
from lakeward.lake.partitionvalue import parse_partition_value
from lakeward.model import BUCKET, OFFSET, TIMESTAMP, Bucket, cast_values


def fit_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Columns that were added since are null."""
    have, count = set(rows.column_names), rows.num_rows
    columns = [cast_values(rows.column(f.name), f.type) if f.name in have else pa.nulls(count, f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def conform(rows: pa.Table, schema: pa.Schema, partition: Mapping[str, str], table: str) -> pa.Table:
    """By name, cast, a newer lake column filled with nulls, partition columns by their values. Raises
    `LakeSchemaBroken`."""
    names, arrays = set(rows.column_names), []
    for field in schema:
        if field.name in partition:
            text, is_text = partition[field.name], pa.types.is_string(field.type)
            value = text if is_text else parse_partition_value(text, field.type)
            arrays.append(pa.repeat(pa.scalar(value, field.type), rows.num_rows))
        elif field.name in names:
            column = rows.column(field.name)
            arrays.append(cast_values(column, field.type))
        elif field.nullable:
            arrays.append(pa.nulls(rows.num_rows, field.type))
        else:
            raise LakeSchemaBroken(table=table, diff=f"the batch has no column {field.name}")
    if lost := names - set(schema.names):
        raise LakeSchemaBroken(table=table, diff=f"the lake table has no column {', '.join(sorted(lost))}")
    return pa.Table.from_arrays(arrays, schema=schema)


def keep_rows(rows: pa.Table, keep: npt.NDArray[np.bool_]) -> pa.Table:
    """Column by column: a table's own filter looks every row up by its number, which takes twice as long where few
    rows go."""
    mask = pa.array(keep)
    return pa.Table.from_arrays([c.filter(mask) for c in rows.columns], schema=rows.schema)


SYSTEM = frozenset({BUCKET, OFFSET, TIMESTAMP})


def fill_address(rows: pa.Table, bucket: Bucket | None, first: int | None, start: int) -> pa.Table:
    """`start`: the position of the table's first row in its file. `first` None: the file does not tell its rows'
    offsets. Columns that the rows do not have are not added.
    """
    for name in SYSTEM & set(rows.column_names):
        at = rows.column_names.index(name)
        values = _column(name, rows.num_rows, bucket, first, start)
        rows = rows.set_column(at, name, values if name == OFFSET else values.cast(rows.schema.types[at]))
    return rows


def _column(name: str, count: int, bucket: Bucket | None, first: int | None, start: int) -> pa.Array:
    if name == BUCKET:
        return pa.array(np.full(count, -1 if bucket is None else bucket.number))
    if name == OFFSET and first is not None:
        return pa.array(np.arange(first + start, first + start + count))
    unknown = pa.array(np.full(count, -1))
    return unknown if name == OFFSET else unknown.cast(pa.timestamp("ms", "UTC"))
