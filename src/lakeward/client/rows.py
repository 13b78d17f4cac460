# SPDX-License-Identifier: Apache-2.0
"""Rows as people have them, brought into a table's columns and types. What does not fit is
refused by row and column.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, is_dataclass, replace
from datetime import datetime, time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.client.casts import holds_decimal, holds_map, in_microseconds, is_fitting
from lakeward.client.frames import as_arrow, is_exact_stand_in, plain
from lakeward.errors import InvalidRequest, InvalidRows
from lakeward.model import (
    CharType,
    Column,
    TableInfo,
    VectorType,
    check_decimal,
    decimals_in,
    default_scalar,
    find_nested_null,
    missing_values,
    to_arrow_field,
    to_arrow_type,
)

_ARROW_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def fit_rows(rows: Any, table: TableInfo, names: Sequence[str]) -> pa.Table:
    """The rows as an Arrow table with exactly these columns, every value checked. Raises `InvalidRows`."""
    columns = [table.schema.column(name) for name in names]
    where = str(table.path)
    arrow = as_arrow(rows)
    fitted = _from_dicts(rows, columns, where) if arrow is None else _from_arrow(arrow, columns, where)
    for column in columns:
        _check_values(fitted.column(column.name), column, where)
    return fitted


@dataclass(frozen=True)
class GivenRows:
    """Rows that give the same columns; None: all. `start` is the first one's place among all that were given."""

    columns: tuple[str, ...] | None
    rows: Any
    start: int = 0


def split_given(rows: Any, table: TableInfo) -> list[GivenRows]:
    """Runs of rows by the columns that they give: an upsert leaves the others alone. Names that the table does not have
    are for `fit_rows` to refuse."""
    arrow = as_arrow(rows)
    if arrow is not None:
        return [GivenRows(_given(arrow.column_names, table), arrow)]
    runs: list[GivenRows] = []
    keys: Set[str] | None = None
    for index, row in enumerate(_dicts(rows)):
        if keys is None or row.keys() != keys:
            keys = row.keys()
            runs.append(GivenRows(_given(keys, table), [], index))
        runs[-1].rows.append(row)
    return runs


def _given(names: Collection[str], table: TableInfo) -> tuple[str, ...] | None:
    known = table.schema.names
    return (
        None if len(names) == len(known) or not set(known).issuperset(names) else tuple(n for n in known if n in names)
    )


def _from_dicts(rows: Any, columns: Sequence[Column], where: str) -> pa.Table:
    dicts = _dicts(rows)
    known = {c.name for c in columns}
    for index, row in enumerate(dicts):
        if not row.keys() <= known:
            raise _unknown(where, index, next(name for name in row if name not in known), known)
    defaults = {c.name: default_scalar(to_arrow_field(c)).as_py() for c in columns if c.default is not None}
    arrays = [_array([row.get(c.name, defaults.get(c.name)) for row in dicts], c, where) for c in columns]
    return pa.table(arrays, names=[c.name for c in columns])


def _dicts(rows: Any) -> list[Mapping[str, Any]]:
    if (row := _as_dict(rows)) is not None:
        return [row]
    if isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
        dicts = [row if (values := _as_dict(row)) is None else values for row in rows]
        if all(isinstance(row, Mapping) for row in dicts):
            return dicts
    raise InvalidRequest(
        what="rows",
        reason=f"{type(rows).__name__} is neither Arrow data nor a list of dicts",
    )


def _as_dict(row: Any) -> Mapping[str, Any] | None:
    """A mapping, a dataclass instance or a Pydantic model as a mapping; None: it is none of them."""
    if isinstance(row, Mapping):
        return row
    if is_dataclass(row) and not isinstance(row, type):
        return asdict(row)
    dump = getattr(row, "model_dump", None)
    return dump() if callable(dump) and hasattr(type(row), "model_fields") else None


def _array(values: list[Any], column: Column, where: str) -> pa.ChunkedArray:
    kind = to_arrow_type(column.type)
    exact = in_microseconds(
        kind
    )  # Python's own precision: building coarser values directly would cut them without a word
    if holds_decimal(kind):
        _check_decimals(values, column, where)
    try:
        exact_array = pa.chunked_array([pa.array(values, type=exact)], type=exact)
    except _ARROW_ERRORS as error:
        for index, value in enumerate(values):
            try:
                pa.array([value], type=exact)
            except _ARROW_ERRORS as reason:
                raise InvalidRows(
                    table=where, row=index, column=column.name, reason=_why(value, column, reason)
                ) from None
        raise InvalidRows(table=where, row=0, column=column.name, reason=str(error)) from None
    _check_kinds(values, exact, column, where)
    return exact_array if exact == kind else _cast(exact_array, kind, column, where)


def _check_decimals(values: list[Any], column: Column, where: str) -> None:
    for index, value in enumerate(values):
        try:
            for number in decimals_in(value):
                check_decimal(number)
        except ValueError as error:
            raise InvalidRows(table=where, row=index, column=column.name, reason=_why(value, column, error)) from None


def _check_kinds(values: list[Any], kind: pa.DataType, column: Column, where: str) -> None:
    """Arrow builds an integer from 1.5, a date from a datetime and text from bytes, each with a loss: what it would
    infer by itself must be of the same kind. Maps and mixed lists cannot be inferred and are not checked here."""
    if holds_map(kind) or _is_inferred(values, kind):
        return
    for index, value in enumerate(values):
        if not _is_inferred([value], kind):
            raise InvalidRows(table=where, row=index, column=column.name, reason=f"{_shown(value)} is no {column.type}")


def _is_inferred(values: list[Any], kind: pa.DataType) -> bool:
    try:
        return is_fitting(pa.array(values).type, kind)
    except _ARROW_ERRORS:
        return len(values) == 1


def _from_arrow(rows: pa.Table, columns: Sequence[Column], where: str) -> pa.Table:
    known = {c.name for c in columns}
    for name in rows.column_names:
        if name not in known or rows.column_names.count(name) > 1:
            raise _unknown(where, 0, name, known)
    arrays = [_fit(rows, c, where) for c in columns]
    return pa.table(arrays, names=[c.name for c in columns])


def _fit(rows: pa.Table, column: Column, where: str) -> pa.ChunkedArray:
    kind = to_arrow_type(column.type)
    if column.name not in rows.column_names:
        return pa.chunked_array([missing_values(to_arrow_field(column), rows.num_rows)], type=kind)
    column_values = rows.column(column.name)
    if column_values.type == kind:
        return column_values
    if is_exact_stand_in(column_values.type, kind):
        return _cast(plain(column_values, kind), kind, column, where)
    if not is_fitting(column_values.type, kind):
        if column_values.null_count == len(column_values):
            return pa.chunked_array([pa.nulls(len(column_values), kind)], type=kind)
        row = _first(column_values, lambda part: part.null_count < len(part))
        raise InvalidRows(table=where, row=row, column=column.name, reason=_misfit(column_values.type, column))
    return _cast(column_values, kind, column, where)


def _misfit(given: pa.DataType, column: Column) -> str:
    advice = ""
    if pa.types.is_timestamp(given) and given.tz is not None and column.type.keyword == "TIMESTAMP":
        advice = "; bring it to UTC first, as with .dt.tz_convert('UTC'), or make the column TIMESTAMP_LTZ"
    elif pa.types.is_timestamp(given) and column.type.keyword == "TIMESTAMP_LTZ":
        advice = "; say its zone first, as with .dt.tz_localize('UTC')"
    return f"{given} does not fit {column.type}{advice}"


def _cast(given: pa.ChunkedArray, kind: pa.DataType, column: Column, where: str) -> pa.ChunkedArray:
    try:
        return given.cast(kind)
    except _ARROW_ERRORS as error:
        row = _first(given, lambda part: not _casts(part, kind))
        raise InvalidRows(
            table=where, row=row, column=column.name, reason=_why(given[row].as_py(), column, error)
        ) from None


def _check_values(values: pa.ChunkedArray, column: Column, where: str) -> None:
    if not column.type.nullable and values.null_count:
        row = pc.index(values.is_null(), True).as_py()
        raise InvalidRows(table=where, row=row, column=column.name, reason="null in a NOT NULL column")
    row = _find_nested_null(values)
    if row is not None:
        raise InvalidRows(
            table=where, row=row, column=column.name, reason=f"a null inside, where {column.type} has none"
        )
    if isinstance(column.type, CharType):
        row = pc.index(pc.greater(pc.utf8_length(values), column.type.length), True).as_py()
        if row >= 0:
            raise InvalidRows(table=where, row=row, column=column.name, reason=f"longer than {column.type.sql}")


def _find_nested_null(values: pa.ChunkedArray) -> int | None:
    start = 0
    for chunk in values.chunks:
        row = find_nested_null(chunk)
        if row is not None:
            return start + row
        start += len(chunk)
    return None


def _casts(part: pa.ChunkedArray, kind: pa.DataType) -> bool:
    try:
        part.cast(kind)
    except _ARROW_ERRORS:
        return False
    return True


def _first(values: pa.ChunkedArray, is_wrong: Callable[[pa.ChunkedArray], bool]) -> int:
    """The first row for which `is_wrong` holds, by halving: some row is wrong for sure."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        if is_wrong(values.slice(low, middle - low)):
            high = middle
        else:
            low = middle
    return low


def _unknown(where: str, row: int, name: str, known: set[str]) -> InvalidRows:
    return InvalidRows(
        table=where, row=row, column=name, reason=f"no such column here; there are {', '.join(sorted(known))}"
    )


def _shown(value: Any) -> str:
    """The beginning of it. `repr` fails on lists that are nested a thousand deep."""
    return f"{reprlib.repr(value) if isinstance(value, list | tuple | dict) else repr(value):.60}"


def _why(value: Any, column: Column, error: Exception) -> str:
    if isinstance(value, datetime | time) and "lose data" in str(error):
        finer = replace(column.type, precision=6).sql  # type: ignore[call-arg]
        return (
            f"{value.isoformat()} is finer than {column.type.sql}, and would be cut; round it, as with "
            f"value.replace(microsecond=value.microsecond // 1000 * 1000), or make the column {finer}"
        )
    if isinstance(column.type, VectorType) and isinstance(value, list) and len(value) != column.type.length:
        return f"it has {len(value)} elements, and {column.type.sql} takes {column.type.length}"
    return f"{_shown(value)} is no {column.type}: {str(error).splitlines()[0]:.200}"
