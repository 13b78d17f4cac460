# SPDX-License-Identifier: Apache-2.0
"""A reader's filter: an Arrow expression with the columns it needs, so that projections stay narrow."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeward.errors import InvalidRequest

Filter: TypeAlias = Any
"""An Arrow expression, or tuples such as `[("id", ">", 5)]` (and within a list, or between lists)."""

Condition = tuple[str, str, Any]
"""(column, operator, value)."""


@dataclass(frozen=True)
class Predicate:
    """`any_of` holds the filter as lists of conditions, one list of which is all true; empty where it came as an
    expression.
    """

    expression: pc.Expression
    columns: tuple[str, ...]
    any_of: tuple[tuple[Condition, ...], ...] = ()

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(self.expression)


def parse_filter(filter: Filter | None, schema: pa.Schema) -> Predicate | None:
    """Raises `InvalidRequest` for a filter of another kind, with an unknown column, or with a value that does not
    compare.
    """
    if filter is None:
        return None
    any_of = () if isinstance(filter, pc.Expression) else _conditions(filter)
    expression = filter if isinstance(filter, pc.Expression) else _from_tuples(filter)
    _check(expression, schema)
    # An expression does not tell its fields; its text names them all. A name inside a literal only widens the
    # projection.
    text = str(expression)
    return Predicate(expression, tuple(n for n in schema.names if n in text), any_of)


def _from_tuples(filter: Sequence[Any]) -> pc.Expression:
    if isinstance(filter, str):
        reason = "it is text; write it as [(column, operator, value), ...], or ask `lakeward sql`"
        raise InvalidRequest(what=f"filter {filter!r:.200}", reason=reason)
    try:
        return pq.filters_to_expression(list(filter))
    except (ValueError, TypeError, RecursionError, pa.ArrowException) as error:
        raise InvalidRequest(
            what=f"filter {reprlib.repr(filter)}", reason=f"{error}; write it as [(column, operator, value), ...]"
        ) from error


def _conditions(filter: Any) -> tuple[tuple[Condition, ...], ...]:
    """Conditions in the form of lists of lists that `filters_to_expression` accepts; it rejects a wrong shape."""
    if not isinstance(filter, Sequence) or isinstance(filter, str) or not filter:
        return ()
    groups = filter if all(isinstance(part, list) for part in filter) else [filter]
    if not all(isinstance(c, tuple) and len(c) == 3 for group in groups for c in group):
        return ()
    return tuple(tuple((str(c), str(o), v) for c, o, v in group) for group in groups)


def _check(expression: pc.Expression, schema: pa.Schema) -> None:
    try:
        schema.empty_table().filter(expression)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidRequest(
            what=f"filter {expression}", reason=f"{reason}; columns are {', '.join(schema.names)}"
        ) from error
