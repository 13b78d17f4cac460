# SPDX-License-Identifier: Apache-2.0
"""Which columns may be bucket keys of which function."""

from __future__ import annotations

from lakeward.errors import UnsupportedBucketKey
from lakeward.model import BucketFunction, DataType, TableDescriptor, row_of


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
