# SPDX-License-Identifier: Apache-2.0
"""A data file's statistics for the log, from its Parquet footer."""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection
from typing import Any

import pyarrow.parquet as pq

_MAX_TEXT = 64
"""A longer bound would be most of a log entry, and prunes little."""


def file_stats(metadata: pq.FileMetaData, partition_columns: Collection[str]) -> str:
    """Bounds of integers, dates and short texts: what JSON says exactly and in one way. Nulls of plain columns. None of
    partition columns: their value is beside."""
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
    kept = {n: b for n, b in bounds.items() if n not in unbounded}
    body = {
        "numRecords": metadata.num_rows,
        "minValues": {n: _spell(low) for n, (low, _) in kept.items()},
        "maxValues": {n: _spell(high) for n, (_, high) in kept.items()},
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
