# SPDX-License-Identifier: Apache-2.0
"""Filters between Spark and us: what a reader gave as tuples becomes a column; what Spark
pushes down becomes tuples.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as st

from lakeward.errors import InvalidRequest
from lakeward.model import TableInfo
from lakeward.read.predicate import Condition, Predicate

_PUSHED = {
    "EqualTo": "==",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "In": "in",
}
_ALIKE = (
    st.BooleanType,
    st.ByteType,
    st.ShortType,
    st.IntegerType,
    st.LongType,
    st.StringType,
    st.DateType,
    st.DecimalType,
)
"""Types on which Spark and Arrow compare alike. Not floats (Spark orders NaN and takes it as equal to itself), not
times (zones).
"""


def spark_condition(predicate: Predicate, table: TableInfo) -> Any:
    """The filter as a column of Spark. Raises `InvalidRequest` for an Arrow expression: Spark cannot read those."""
    if not predicate.any_of:
        reason = "in Spark give it as [(column, operator, value), ...], or filter the DataFrame"
        raise InvalidRequest(what=f"filter {predicate.expression} on {table.path}", reason=reason)
    groups = [reduce(lambda a, b: a & b, map(_column, group)) for group in predicate.any_of]
    return reduce(lambda a, b: a | b, groups)


def _column(condition: Condition) -> Any:
    name, operator, value = condition
    column = F.col(f"`{name}`")
    match operator:
        case "=" | "==":
            return column == value
        case "!=":
            return column != value
        case "<":
            return column < value
        case "<=":
            return column <= value
        case ">":
            return column > value
        case ">=":
            return column >= value
        case "in":
            return column.isin(list(value))
        case "not in":
            return ~column.isin(list(value))
    raise InvalidRequest(what=f"filter on {name}", reason=f"{operator!r} is not one of =, !=, <, <=, >, >=, in, not in")


def pushed_condition(condition: Any, schema: Any) -> Condition | None:
    """Spark's filter as (column, operator, value); None where it is of another kind, or where Arrow may compare
    otherwise.
    """
    operator = _PUSHED.get(type(condition).__name__)
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    value = getattr(condition, "value", None)
    if operator is None or len(attribute) != 1 or value is None or attribute[0] not in schema.names:
        return None
    if not isinstance(schema[attribute[0]].dataType, _ALIKE):
        return None
    if operator == "in":
        return (attribute[0], "in", list(value)) if value and all(v is not None for v in value) else None
    return (attribute[0], operator, value)
