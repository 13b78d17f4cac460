# SPDX-License-Identifier: Apache-2.0
"""Semantic types of Debezium and Kafka Connect: their column types, and their values as Python has them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from lakeward.model import types as mt

Parameters = Mapping[str, Any]

_CONNECT: dict[str, mt.DataType] = {
    "boolean": mt.BooleanType(), "int8": mt.Int16Type(), "int16": mt.Int16Type(), "int32": mt.Int32Type(),
    "int64": mt.Int64Type(), "float": mt.Float32Type(), "float32": mt.Float32Type(), "double": mt.Float64Type(),
    "float64": mt.Float64Type(), "bytes": mt.BytesType(), "string": mt.StringType(),
}  # fmt: skip
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_DIGITS = 38


@dataclass(frozen=True)
class Semantic:
    """`column_type` takes the schema's parameters, `convert` a value and them. Values that have been converted already,
    as those of Avro's own logical types, pass."""

    column_type: Callable[[Parameters], mt.DataType]
    convert: Callable[[Any, Parameters], Any]


def _days(value: int, _: Parameters) -> date:
    return date(1970, 1, 1) + timedelta(days=value)


def _time(micros: float) -> Callable[[int, Parameters], time]:
    return lambda value, _: (_EPOCH + timedelta(microseconds=int(value * micros))).time()


def _moment(micros: float) -> Callable[[int, Parameters], datetime]:
    return lambda value, _: (_EPOCH + _delta(value, micros)).replace(tzinfo=None)


def _delta(value: int, micros: float) -> timedelta:
    return timedelta(microseconds=value * int(micros) if micros >= 1 else value // round(1 / micros))


def _digits(value: bytes | str, parameters: Parameters) -> Decimal:
    scale = int(parameters.get("scale", 0))
    return Decimal(int.from_bytes(read_bytes(value), signed=True)).scaleb(-scale)


def _variable(value: Mapping[str, Any], _: Parameters) -> str:
    return f"{_digits(value['value'], value):f}"


def _decimal_type(parameters: Parameters) -> mt.DataType:
    precision = int(parameters.get("connect.decimal.precision") or MOST_DIGITS)
    return mt.DecimalType(precision=precision, scale=int(parameters.get("scale", 0)))


def _of(kind: mt.DataType, convert: Callable[[Any, Parameters], Any]) -> Semantic:
    return Semantic(lambda _: kind, convert)


_DEBEZIUM, _KAFKA = "io.debezium.time", "org.apache.kafka.connect.data"
SEMANTIC: dict[str, Semantic] = {
    f"{_DEBEZIUM}.Date": _of(mt.DateType(), _days),
    f"{_DEBEZIUM}.Time": _of(mt.TimeType(precision=3), _time(1e3)),
    f"{_DEBEZIUM}.MicroTime": _of(mt.TimeType(precision=6), _time(1)),
    f"{_DEBEZIUM}.NanoTime": _of(mt.TimeType(precision=6), _time(1e-3)),
    f"{_DEBEZIUM}.Timestamp": _of(mt.TimestampType(precision=3), _moment(1e3)),
    f"{_DEBEZIUM}.MicroTimestamp": _of(mt.TimestampType(precision=6), _moment(1)),
    f"{_DEBEZIUM}.NanoTimestamp": _of(mt.TimestampType(precision=6), _moment(1e-3)),
    f"{_DEBEZIUM}.ZonedTimestamp": _of(mt.TimestampLtzType(precision=6), lambda value, _: value),
    "io.debezium.data.VariableScaleDecimal": _of(mt.StringType(), _variable),
    f"{_KAFKA}.Date": _of(mt.DateType(), _days),
    f"{_KAFKA}.Time": _of(mt.TimeType(precision=3), _time(1e3)),
    f"{_KAFKA}.Timestamp": _of(mt.TimestampType(precision=3), _moment(1e3)),
    f"{_KAFKA}.Decimal": Semantic(_decimal_type, _digits),
}


def convert_semantic(value: Any, name: str, parameters: Parameters) -> Any:
    """A value of that semantic type; one of none, or that is converted already, as it is."""
    semantic = SEMANTIC.get(name)
    if semantic is None or not isinstance(value, int | str | bytes | Mapping):
        return value
    return semantic.convert(value, parameters)


def read_bytes(value: bytes | str) -> bytes:
    """Connect's JSON has bytes as base64. Raises `ValueError`."""
    return base64.b64decode(value, validate=True) if isinstance(value, str) else value


def connect_type(field: Mapping[str, Any]) -> mt.DataType:
    """The column type of a field in a Connect schema as JSON."""
    semantic, kind = SEMANTIC.get(str(field.get("name", ""))), field["type"]
    if semantic is not None:
        return semantic.column_type(field.get("parameters") or {})
    if kind == "array":
        return mt.ArrayType(element=connect_type(field["items"]))
    if kind == "map":
        return mt.MapType(key=mt.StringType(nullable=False), value=connect_type(field["values"]))
    if kind == "struct":
        fields = tuple(mt.RowField(name=f["field"], type=connect_type(f)) for f in field["fields"])
        return mt.RowType(fields=fields)
    return _CONNECT.get(kind, mt.StringType())
