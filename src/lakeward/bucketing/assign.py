# SPDX-License-Identifier: Apache-2.0
"""Rows to bucket numbers: blocks of rows through the table's bucket function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeward.bucketing import fluss, hudi, iceberg, paimon
from lakeward.bucketing.values import KeyColumn
from lakeward.errors import InvalidRequest, UnsupportedBucketKey
from lakeward.model import BucketFunction, DataType, TableDescriptor, row_of, to_arrow_type

Buckets = npt.NDArray[np.int32]

BLOCK_ROWS = 32_768
"""A block's arrays of eight bytes a row stay in the second-level cache; measured best between 16 k and 64 k."""

FUNCTIONS: Mapping[BucketFunction, Callable[[Sequence[KeyColumn], int], Buckets]] = {
    BucketFunction.FLUSS: fluss.assign,
    BucketFunction.ICEBERG: iceberg.assign,
    BucketFunction.PAIMON: paimon.assign,
    BucketFunction.HUDI: hudi.assign,
}


def assign(
    function: BucketFunction,
    columns: Sequence[pa.Array | pa.ChunkedArray],
    types: Sequence[DataType],
    count: int,
    names: Sequence[str] | None = None,
) -> Buckets:
    """The bucket of each row from its key columns. Raises `UnsupportedBucketKey`, and `InvalidRequest` for a value (a
    null, for instance) that the function does not take, naming the column and the row."""
    labels = list(names) if names is not None else [f"key {i}" for i in range(len(columns))]
    _check(function, types, labels, count)
    plain_columns = [_plain(column, kind) for column, kind in zip(columns, types, strict=True)]
    rows = len(plain_columns[0])
    buckets = np.empty(rows, np.int32)
    for at in range(0, rows, BLOCK_ROWS):
        parts = zip(labels, plain_columns, types, strict=True)
        block = [KeyColumn(name=n, values=a.slice(at, BLOCK_ROWS), type=t, first_row=at) for n, a, t in parts]
        buckets[at : at + BLOCK_ROWS] = FUNCTIONS[function](block, count)
    return buckets


def assign_buckets(rows: pa.Table | pa.RecordBatch, descriptor: TableDescriptor) -> Buckets:
    """The bucket of each row of a table with bucket keys."""
    keys = descriptor.bucket_keys
    types = [descriptor.schema.column(name).type for name in keys]
    return assign(
        descriptor.bucket_function, [rows.column(name) for name in keys], types, descriptor.bucket_count, keys
    )


def _check(function: BucketFunction, types: Sequence[DataType], names: Sequence[str], count: int) -> None:
    if not types or count < 1:
        raise InvalidRequest(
            what="bucket assignment", reason=f"{len(types)} key columns, {count} buckets: at least one of each"
        )
    for name, kind in zip(names, types, strict=True):
        reason = find_reason(function, kind, len(types))
        if reason:
            raise UnsupportedBucketKey(column=name, type=str(kind), function=str(function), reason=reason)


def _plain(column: pa.Array | pa.ChunkedArray, kind: DataType) -> pa.Array:
    """One array of exactly the Arrow type that the column type maps to."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    wanted = to_arrow_type(kind)
    return column if column.type == wanted else column.cast(wanted)


def check_bucket_keys(descriptor: TableDescriptor) -> None:
    """Called when a table is created. Raises `UnsupportedBucketKey` naming the column."""
    function = descriptor.bucket_function
    for name in descriptor.bucket_keys:
        kind = descriptor.schema.column(name).type
        reason = find_reason(function, kind, len(descriptor.bucket_keys))
        if reason:
            raise UnsupportedBucketKey(column=name, type=str(kind), function=str(function), reason=reason)


def choose_function(function: BucketFunction, descriptor: TableDescriptor) -> BucketFunction:
    """The lake format's own `function` where it takes these keys, so that the lake may prune by it; else Fluss's."""
    kinds = [descriptor.schema.column(name).type for name in descriptor.bucket_keys]
    takes_all = all(find_reason(function, kind, len(kinds)) is None for kind in kinds)
    return function if takes_all else BucketFunction.FLUSS


def find_reason(function: BucketFunction, kind: DataType, keys: int) -> str | None:
    """Why a column of this type cannot be one of so many bucket keys; None when it can."""
    if function not in row_of(kind).bucket_key_of:
        return "this function has no encoding for the type"
    if function is BucketFunction.ICEBERG and keys > 1:  # its bucket transform has one source column
        return f"it takes one key column and there are {keys}; use the fluss function"
    return None
