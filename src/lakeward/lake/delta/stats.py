# SPDX-License-Identifier: Apache-2.0
"""Statistics of data files in the log: written from a file's Parquet footer, and used to skip files in a scan."""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection, Sequence
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeward.lake.core.columnmap import stored_key
from lakeward.lake.core.columns import parse_partition_value
from lakeward.lake.delta.meta.actions import AddFile
from lakeward.lake.satisfiable import may_match

_MAX_TEXT = 64
"""Longer bounds would make up most of a log entry and prune little."""


def file_stats(metadata: pq.FileMetaData, partition_columns: Collection[str]) -> str:
    """Encodes bounds of integers, dates and short texts, which JSON spells exactly and in one way, and null counts of
    flat columns. Partition columns have none: their value is in the action."""
    nulls: dict[str, int] = {}
    bounds: dict[str, tuple[Any, Any]] = {}
    unbounded: set[str] = set()
    for group in range(metadata.num_row_groups):
        for at in range(metadata.num_columns):
            column = metadata.row_group(group).column(at)
            name, statistics = column.path_in_schema, column.statistics
            if (
                metadata.schema.column(at).max_repetition_level
                or "." in name
                or statistics is None
                or name in partition_columns
            ):
                continue
            nulls[name] = nulls.get(name, 0) + int(statistics.null_count or 0)
            if statistics.has_min_max and _is_exact(statistics.min) and _is_exact(statistics.max):
                low, high = bounds.get(name, (statistics.min, statistics.max))
                bounds[name] = min(low, statistics.min), max(high, statistics.max)
            elif statistics.num_values:
                unbounded.add(name)
    exact_bounds = {n: b for n, b in bounds.items() if n not in unbounded}
    body = {
        "numRecords": metadata.num_rows,
        "minValues": {n: _spell(low) for n, (low, _) in exact_bounds.items()},
        "maxValues": {n: _spell(high) for n, (_, high) in exact_bounds.items()},
        "nullCount": nulls,
        "tightBounds": True,
    }
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def _is_exact(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _MAX_TEXT
    return type(value) in (int, datetime.date)


def _spell(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime.date) else value


def prune(files: Sequence[AddFile], filter: pc.Expression, schema: pa.Schema) -> list[AddFile]:
    """Leaves out files in which no row matches. `schema`: the columns of the filter. When in doubt a file stays."""
    known = [reduce(and_, (_known(f, column) for column in schema), pc.scalar(True)) for f in files]
    return [f for f, may in zip(files, may_match(filter, schema, known), strict=True) if may]


def _known(file: AddFile, column: pa.Field) -> pc.Expression:
    values = file.action.get("partitionValues") or {}
    field, key = pc.field(column.name), stored_key(column)
    if key in values:
        value = parse_partition_value(values[key], column.type)
        return field.is_null() if value is None else field == pa.scalar(value, column.type)
    low, high = (_bound(file.stats.get(end, {}).get(key), column.type) for end in ("minValues", "maxValues"))
    if low is None or high is None:
        return pc.scalar(True)
    if file.stats.get("nullCount", {}).get(key) == 0:
        return (field >= low) & (field <= high)
    # One by one: Arrow ignores a range that is combined with a null.
    return ((field >= low) | field.is_null()) & ((field <= high) | field.is_null())


def _bound(value: Any, kind: pa.DataType) -> pa.Scalar | None:
    """Bounds of types that JSON spells exactly. Some writers cut times to milliseconds, and NaN is beyond every
    bound."""
    try:
        if pa.types.is_date(kind):
            return pa.scalar(datetime.date.fromisoformat(value), kind)
        if (pa.types.is_integer(kind) and type(value) is int) or (pa.types.is_string(kind) and isinstance(value, str)):
            return pa.scalar(value, kind)
    except (pa.ArrowException, TypeError, ValueError):
        return None
    return None
