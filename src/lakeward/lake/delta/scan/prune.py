# SPDX-License-Identifier: Apache-2.0
"""Which data files a filter lets out, by their partition's values and by the bounds that the log keeps of columns."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.lake.delta.meta.actions import AddFile
from lakeward.lake.partitionvalue import parse_partition_value
from lakeward.lake.satisfiable import may_match


def prune(files: Sequence[AddFile], filter: pc.Expression, schema: pa.Schema) -> list[AddFile]:
    """`schema`: the columns that the filter names. In doubt a file stays."""
    known = [reduce(and_, (_known(f, column) for column in schema), pc.scalar(True)) for f in files]
    return [f for f, may in zip(files, may_match(filter, schema, known), strict=True) if may]


def _known(file: AddFile, column: pa.Field) -> pc.Expression:
    values = file.action.get("partitionValues") or {}
    field = pc.field(column.name)
    if column.name in values:
        value = parse_partition_value(values[column.name], column.type)
        return field.is_null() if value is None else field == pa.scalar(value, column.type)
    low, high = (_bound(file.stats.get(key, {}).get(column.name), column.type) for key in ("minValues", "maxValues"))
    if low is None or high is None:
        return pc.scalar(True)
    if file.stats.get("nullCount", {}).get(column.name) == 0:
        return (field >= low) & (field <= high)
    # One by one: Arrow makes nothing of a range that a null is beside.
    return ((field >= low) | field.is_null()) & ((field <= high) | field.is_null())


def _bound(value: Any, kind: pa.DataType) -> pa.Scalar | None:
    """Of types that JSON says exactly. Times are cut to milliseconds by some, and NaN is beyond every bound."""
    try:
        if pa.types.is_date(kind):
            return pa.scalar(datetime.date.fromisoformat(value), kind)
        if (pa.types.is_integer(kind) and type(value) is int) or (pa.types.is_string(kind) and isinstance(value, str)):
            return pa.scalar(value, kind)
    except (pa.ArrowException, TypeError, ValueError):
        return None
    return None
