# SPDX-License-Identifier: Apache-2.0
"""Postgres types as columns, and their text as Arrow values.

A type without a counterpart becomes its text, which loses nothing: enums, ranges, JSON, UUIDs, intervals, addresses,
numeric without a precision, types of extensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import SourceStopped
from lakeward.model import (
    ArrayType,
    BooleanType,
    BytesType,
    Column,
    DataType,
    DateType,
    DecimalType,
    Float32Type,
    Float64Type,
    Int16Type,
    Int32Type,
    Int64Type,
    StringType,
    TimestampLtzType,
    TimestampType,
    TimeType,
    to_arrow_type,
)
from lakeward.source.changes import Stored

_LARGEST_PRECISION = 38
_SIMPLE: dict[str, Callable[[], DataType]] = {
    "bool": BooleanType,
    "int2": Int16Type,
    "int4": Int32Type,
    "int8": Int64Type,
    "oid": Int64Type,
    "float4": Float32Type,
    "float8": Float64Type,
    "bytea": BytesType,
    "date": DateType,
}
_INFINITIES = {
    "infinity": ("9999-12-31", "9999-12-31 23:59:59.999999"),
    "-infinity": ("0001-01-01", "0001-01-01 00:00:00"),
}
"""Their replacements: dates and times in lakes have no infinity."""


@dataclass(frozen=True)
class PgColumn:
    """`base`: the type's name behind domains; of an array that of its elements."""

    name: str
    number: int
    type_name: str
    base: str
    modifier: int
    is_array: bool
    has_default: bool
    is_key: bool = False


def column_of(column: PgColumn, as_text: bool) -> Column:
    element = StringType() if as_text else _scalar(column.base, column.modifier)
    kind: DataType = ArrayType(element=element) if column.is_array and not as_text else element
    is_required = column.is_key
    return Column(name=column.name, type=kind.with_nullable(not is_required))


def _scalar(base: str, modifier: int) -> DataType:
    if base in _SIMPLE:
        return _SIMPLE[base]()
    if base == "numeric" and modifier >= 4:
        precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
        scale = scale - 2048 if scale >= 1024 else scale
        if 0 <= scale <= precision <= _LARGEST_PRECISION:
            return DecimalType(precision=precision, scale=scale)
    if base in ("timestamp", "timestamptz"):
        return (TimestampType if base == "timestamp" else TimestampLtzType)(precision=6)
    return TimeType(precision=6) if base == "time" else StringType()


def convert(source: str, table: str, column: Column, base: str, texts: Sequence[Any]) -> pa.Array:
    """Raises `SourceStopped` naming the first value that the column cannot hold."""
    kind = to_arrow_type(column.type)
    if any(isinstance(text, Stored) for text in texts):
        cells = [
            pa.array([text.value], kind) if isinstance(text, Stored) else convert(source, table, column, base, [text])
            for text in texts
        ]
        return pa.concat_arrays(cells)
    try:
        return _convert(kind, base, texts)
    except (pa.ArrowException, ValueError, TypeError, ArithmeticError, IndexError):
        for text in texts:
            try:
                _convert(kind, base, [text])
            except (pa.ArrowException, ValueError, TypeError, ArithmeticError, IndexError) as error:
                raise SourceStopped(
                    source=source,
                    where=f"table {table}, column {column.name}",
                    reason=f"{str(text)[:60]!r} does not fit {column.type}: {str(error).splitlines()[0][:200]}",
                    advice=f"Store the column as its text: drop the source and its table, and ingest again with "
                    f"--text {table}.{column.name}",
                ) from None
        raise


def _convert(kind: pa.DataType, base: str, texts: Sequence[str | None]) -> pa.Array:
    if pa.types.is_list(kind):
        values = [None if text is None else parse_array(text) for text in texts]
        flat = [item for value in values if value is not None for item in value]
        offsets, total = [0], 0
        for value in values:
            total += 0 if value is None else len(value)
            offsets.append(total)
        mask = pa.array([value is None for value in values], pa.bool_())
        items = _convert(kind.value_type, base, flat)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, type=kind, mask=mask)
    if pa.types.is_string(kind):
        return pa.array(texts, pa.string())
    if pa.types.is_binary(kind):
        return pa.array([None if text is None else bytes.fromhex(text.removeprefix("\\x")) for text in texts], kind)
    strings = pa.array(texts, pa.string())
    if pa.types.is_time(kind):
        return pa.array([None if text is None else time.fromisoformat(text) for text in texts], kind)
    if pa.types.is_boolean(kind):
        return pc.equal(strings, "t")
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _moments(kind, strings)
    return pc.cast(strings, kind)


def _moments(kind: pa.DataType, strings: pa.Array) -> pa.Array:
    is_date = pa.types.is_date(kind)
    if pc.any(pc.match_substring(strings, "infinity")).as_py():
        ends = {word: day if is_date else moment for word, (day, moment) in _INFINITIES.items()}
        if not is_date and kind.tz is not None:
            ends = {word: f"{moment}+00" for word, moment in ends.items()}
        strings = pa.array([ends.get(text, text) for text in strings.to_pylist()], pa.string())
    return pc.cast(strings, kind)


def parse_array(text: str) -> list[str | None]:
    """One dimension of an array's text. Raises `ValueError` for more, and for bounds of its own."""
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError("an array with bounds of its own")
    if "{" in text[1:-1] and '"' not in text:
        raise ValueError("an array of several dimensions")
    if '"' not in text:
        inner = text[1:-1]
        return [None if item == "NULL" else item for item in inner.split(",")] if inner else []
    return _parse_quoted(text)


def _parse_quoted(text: str) -> list[str | None]:
    items: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        if text[at] == "{":
            raise ValueError("an array of several dimensions")
        if text[at] == '"':
            item, at = "", at + 1
            while text[at] != '"':
                at += text[at] == "\\"
                item, at = item + text[at], at + 1
            items.append(item)
            at += 1
        else:
            stop = text.find(",", at, end)
            stop = end if stop < 0 else stop
            items.append(None if text[at:stop] == "NULL" else text[at:stop])
            at = stop
        at += 1
    return items
