# SPDX-License-Identifier: Apache-2.0
"""A reader's filter: an Arrow expression with the columns it needs, so that projections stay narrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeward.errors import InvalidRequest

Filter: TypeAlias = Any
"""An Arrow expression, or tuples such as `[("id", ">", 5)]` (and within a list, or between lists)."""


@dataclass(frozen=True)
class Predicate:
    expression: pc.Expression
    columns: tuple[str, ...]

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(self.expression)


def parse_filter(filter: Filter | None, names: Sequence[str]) -> Predicate | None:
    """Raises `InvalidRequest` for a filter that is neither, or that names no column of the table."""
    if filter is None:
        return None
    expression = filter if isinstance(filter, pc.Expression) else _from_tuples(filter)
    # An expression does not tell its fields; its text names them all. A name inside a literal only widens the projection.
    text = str(expression)
    columns = tuple(n for n in names if n in text)
    if not columns:
        raise InvalidRequest(what=f"filter {text}", reason=f"it names no column of the table; there are {', '.join(names)}")
    return Predicate(expression, columns)


def _from_tuples(filter: Sequence[Any]) -> pc.Expression:
    try:
        return pq.filters_to_expression(list(filter))
    except (ValueError, TypeError, pa.ArrowException) as error:
        raise InvalidRequest(what=f"filter {filter!r}", reason=f"{error}; write it as [(column, operator, value), ...]") from error
