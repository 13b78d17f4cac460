# SPDX-License-Identifier: Apache-2.0
"""Which columns may be bucket keys of which function."""

from __future__ import annotations

from lakeward.errors import UnsupportedBucketKey
from lakeward.model.table import BucketFunction, TableDescriptor
from lakeward.model.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    BytesType,
    DataType,
    Float32Type,
    Float64Type,
    Int8Type,
    Int16Type,
    MapType,
    RowType,
    TimestampLtzType,
)

_NESTED: tuple[type[DataType], ...] = (ArrayType, MapType, RowType)
REFUSED: dict[BucketFunction, tuple[type[DataType], ...]] = {
    BucketFunction.FLUSS: _NESTED,
    BucketFunction.PAIMON: _NESTED,
    BucketFunction.ICEBERG: (*_NESTED, BooleanType, Int8Type, Int16Type, TimestampLtzType, Float32Type, Float64Type),
    BucketFunction.HUDI: (*_NESTED, BinaryType, BytesType),
}
"""Types that a function has no encoding for."""

_TAKES_NULL = frozenset({BucketFunction.PAIMON, BucketFunction.HUDI})


def check_bucket_keys(descriptor: TableDescriptor) -> None:
    """Called when a table is created. Raises `UnsupportedBucketKey` naming the column."""
    function = descriptor.bucket_function
    for name in descriptor.bucket_keys:
        kind = descriptor.schema.column(name).type
        reason = _reason(function, kind, len(descriptor.bucket_keys))
        if reason:
            raise UnsupportedBucketKey(column=name, type=str(kind), function=str(function), reason=reason)


def _reason(function: BucketFunction, kind: DataType, keys: int) -> str | None:
    if isinstance(kind, REFUSED[function]):
        return "this function cannot encode the type"
    if function is BucketFunction.ICEBERG and keys > 1:
        return "it takes one key column; use the fluss function for composite keys"
    return None
