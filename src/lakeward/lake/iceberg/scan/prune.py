# SPDX-License-Identifier: Apache-2.0
"""Which files and row groups a filter lets out, by the bounds that manifests and Parquet footers keep of
their columns.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, IntegerType, LongType, PrimitiveType, StringType

from lakeward.lake.satisfiable import may_match

_BOUNDED = (IntegerType, LongType, StringType, DateType)
"""Types whose stored bounds are plain values. Floats have NaN outside their bounds; the others prune little."""


class FilterBounds:
    """One filter with the columns it names. Nothing is let out in doubt."""

    def __init__(self, filter: pc.Expression, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> None:
        self._filter, self._columns = filter, tuple(columns)
        self._schema = pa.schema([(n, types[n]) for n in columns])

    def may_hold(self, schema: Schema, file: DataFile) -> bool:
        """By the manifest's bounds: the file need not be opened."""

        def facts(name: str) -> tuple[Any, Any, bool] | None:
            field = schema.find_field(name)
            kind, at = field.field_type, field.field_id
            low, high = (file.lower_bounds or {}).get(at), (file.upper_bounds or {}).get(at)
            if not isinstance(kind, _BOUNDED) or low is None or high is None:
                return None
            try:
                return from_bytes(kind, low), _upper(kind, high), (file.null_value_counts or {}).get(at, 1) > 0
            except (struct.error, ValueError):  # written before the column's type was widened
                return None

        return self._may([facts])[0]

    def row_groups(self, file: pq.ParquetFile, physical: Mapping[str, str | None]) -> list[int]:
        """Row groups that may hold a row."""
        metadata = file.metadata
        leaves = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}

        def facts_of(group: int) -> Callable[[str], tuple[Any, Any, bool] | None]:
            def facts(name: str) -> tuple[Any, Any, bool] | None:
                at = leaves.get(physical.get(name) or "")
                statistics = None if at is None else metadata.row_group(group).column(at).statistics
                if (
                    statistics is None
                    or not statistics.has_min_max
                    or pa.types.is_floating(self._schema.field(name).type)
                ):
                    return None
                return statistics.min, statistics.max, not statistics.has_null_count or statistics.null_count > 0

            return facts

        kept = self._may([facts_of(g) for g in range(metadata.num_row_groups)])
        return [group for group, may in enumerate(kept) if may]

    def _may(self, facts: Sequence[Callable[[str], tuple[Any, Any, bool] | None]]) -> list[bool]:
        return may_match(self._filter, self._schema, [self._known(f) for f in facts])

    def _known(self, facts: Callable[[str], tuple[Any, Any, bool] | None]) -> pc.Expression:
        known = pc.scalar(True)
        for name in self._columns:
            known_facts = facts(name)
            if known_facts is not None:
                known = known & self._between(name, *known_facts)
        return known

    def _between(self, name: str, low: Any, high: Any, has_nulls: bool) -> pc.Expression:
        kind, column = self._schema.field(name).type, pc.field(name)
        try:
            clauses = [column >= pa.scalar(low, kind)]
            if high is not None:
                clauses.append(column <= pa.scalar(high, kind))
        except (pa.ArrowException, TypeError, ValueError):
            return pc.scalar(True)
        # One by one: Arrow makes nothing of a range that a null is beside.
        return reduce(and_, [c | column.is_null() for c in clauses] if has_nulls else clauses)


def _upper(kind: PrimitiveType, raw: bytes) -> Any:
    """A text's upper bound may be cut and raised to something that is no text; then there is none."""
    try:
        return from_bytes(kind, raw)
    except UnicodeDecodeError:
        return None
