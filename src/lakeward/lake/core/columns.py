# SPDX-License-Identifier: Apache-2.0
"""Converts rows between lake files and readers or writers: fits them to the current columns, removes deleted rows, and
adds the system columns of a *clean* lake table, which stores the user's columns only.

A file of a clean log table records its bucket and its first and last offset outside its rows, in its format's own way.
A row's offset is its file's first offset plus the row's position, if the file has no gaps. Unknown offsets are -1, as
in rows of Fluss's KV snapshots.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeward.errors import InvalidRequest, LakeSchemaBroken, UnsupportedType
from lakeward.model import (
    BUCKET,
    OFFSET,
    TIMESTAMP,
    TYPES,
    Bucket,
    PartitionKey,
    PartitionUnit,
    TableDescriptor,
    TablePath,
    cast_values,
    default_scalar,
    missing_values,
    row_of,
)


def check_partition_keys(path: TablePath, descriptor: TableDescriptor, *, by_time: bool = False) -> None:
    """Checks the types of partition columns. The rule is Lakeward's: lake formats can do more. `by_time`: the format
    has partitions by the time of a column. Raises `UnsupportedType`."""
    for key in descriptor.partitioning:
        kind = descriptor.schema.column(key.column).type
        if key.unit is None and not row_of(kind).partition_key:
            allowed = ", ".join(r.cls.keyword for r in TYPES if r.partition_key)
            where = f"{path}, partition key {key}"
            way = "partition by a column that holds its day, hour or month instead"
            if by_time and PartitionKey(key.column, PartitionUnit.DAY).why_not(kind) is None:
                way = f"partition by day({key}), hour({key}), month({key}) or year({key}) instead"
            reason = f"{way}; allowed are {allowed}"
            raise UnsupportedType(where=where, type=str(kind), by="Lakeward as a partition key", reason=reason)


def parse_partition_value(text: str | None, kind: pa.DataType) -> Any:
    """Parses a partition value as partitions and logs spell it. Raises `InvalidRequest`."""
    if not text:
        return None
    try:
        if pa.types.is_boolean(kind):
            return {"true": True, "false": False}[text.lower()]
        if pa.types.is_integer(kind):
            return int(text)
        if pa.types.is_date(kind):
            return datetime.date.fromisoformat(text)
    except (ValueError, KeyError) as error:
        raise InvalidRequest(what=f"partition value {text!r}", reason=f"it is not a {kind}") from error
    if pa.types.is_string(kind):
        return text
    raise InvalidRequest(what=f"partition value {text!r}", reason=f"{kind} cannot be a partition key")


def fit_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Fits rows to a schema; columns that were added since the rows were written have
    their default."""
    have, count = set(rows.column_names), rows.num_rows
    columns = [cast_values(rows.column(f.name), f.type) if f.name in have else missing_values(f, count) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def conform(rows: pa.Table, schema: pa.Schema, partition: Mapping[str, str], table: str) -> pa.Table:
    """Matches columns by name and casts them. Newer lake columns have their default, partition columns get their values
    from `partition`. Raises `LakeSchemaBroken`."""
    names, arrays = set(rows.column_names), []
    for field in schema:
        if field.name in partition:
            text, is_text = partition[field.name], pa.types.is_string(field.type)
            value = text if is_text else parse_partition_value(text, field.type)
            arrays.append(pa.repeat(pa.scalar(value, field.type), rows.num_rows))
        elif field.name in names:
            column = rows.column(field.name)
            arrays.append(cast_values(column, field.type))
        elif field.nullable or default_scalar(field).is_valid:
            arrays.append(missing_values(field, rows.num_rows))
        else:
            raise LakeSchemaBroken(table=table, diff=f"the batch has no column {field.name}")
    if lost := names - set(schema.names):
        raise LakeSchemaBroken(table=table, diff=f"the lake table has no column {', '.join(sorted(lost))}")
    return pa.Table.from_arrays(arrays, schema=schema)


def keep_rows(rows: pa.Table, keep: npt.NDArray[np.bool_]) -> pa.Table:
    """Filters column by column: `pa.Table.filter` looks up every row by its number, which takes twice as long if it
    removes few rows."""
    mask = pa.array(keep)
    return pa.Table.from_arrays([c.filter(mask) for c in rows.columns], schema=rows.schema)


SYSTEM = frozenset({BUCKET, OFFSET, TIMESTAMP})


def fill_address(rows: pa.Table, bucket: Bucket | None, first: int | None, start: int) -> pa.Table:
    """Fills in bucket and offset. `start`: the position of the table's first row in its file. `first` None: the file
    does not record its rows' offsets. Columns that the rows do not have are not added."""
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
