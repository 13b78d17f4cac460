# SPDX-License-Identifier: Apache-2.0
"""Messages of Kafka as rows: the base of all decoders, JSON, and messages as they are.

A decoder works on one task's messages as Arrow; what cannot be decoded becomes a `BadMessage`.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.json as pa_json

from lakeward.client.columns import parse_columns
from lakeward.client.jsonvalues import plan_converter
from lakeward.errors import InvalidRequest
from lakeward.model import Column, to_arrow_type
from lakeward.model import types as mt
from lakeward.source.kafka.registry import open_registry

RAW = "key bytes, value bytes"
DECODE_ERRORS = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    RecursionError,
    OverflowError,
    ArithmeticError,
    pa.ArrowException,
    EOFError,
)
"""What reading a message raises that is not what its format says, nested too deeply among others."""


@dataclass(frozen=True)
class BadMessage:
    place: int
    column: str
    reason: str


@dataclass
class Decoded:
    """`rows`: an Arrow table with the rows of `places`, or a list of dicts. `deletes`: place -> key values."""

    rows: Any
    places: list[int]
    deletes: dict[int, dict[str, Any]] = field(default_factory=dict)
    bad: list[BadMessage] = field(default_factory=list)
    truncates: list[int] = field(default_factory=list)
    is_partial: bool = False
    """Some rows lack columns that are to stay as they are."""


class Decoder(ABC):
    """`columns`: those of the table; made in each task."""

    def __init__(self, columns: Sequence[Column], key: Sequence[str], config: Mapping[str, Any]) -> None:
        self.columns, self.key, self.config = columns, tuple(key), config
        self._converters = {c.name: plan_converter(to_arrow_type(c.type)) for c in columns}

    @abstractmethod
    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Decoded: ...

    @classmethod
    @abstractmethod
    def topic_columns(cls, topic: str, config: Mapping[str, Any], samples: Sequence[bytes]) -> list[Column]:
        """The columns of a topic's messages, from their schema or from values of the first ones; empty where there is
        neither. Raises `InvalidRequest`, `SourceUnavailable`."""

    def message_columns(self, values: Sequence[bytes]) -> list[Column]:
        """The columns of messages that did not fit the table, for one that evolves."""
        return []

    def convert(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """JSON values as the columns take them. Raises `ColumnError`."""
        row: dict[str, Any] = {}
        for name, cell in value.items():
            convert = self._converters.get(name)
            if convert is None:
                raise ColumnError(name, "the table has no such column")
            try:
                row[name] = convert(cell)
            except DECODE_ERRORS as error:
                raise ColumnError(name, str(error)) from error
        return row

    def tombstone(self, key: bytes | None) -> dict[str, Any]:
        """The primary key that a message key names: a JSON object, or the one column's value. Raises `ColumnError`."""
        if not self.key:
            raise ColumnError("", "a message without a value, in a table without a primary key")
        if key is None:
            raise ColumnError("", "a tombstone without a key")
        try:
            value = self.read_key(key)
        except DECODE_ERRORS as error:
            raise ColumnError("", f"the key of a tombstone cannot be read: {str(error)[:200]}") from error
        if isinstance(value, Mapping):
            return self.convert({name: value.get(name) for name in self.key})
        if len(self.key) > 1:
            raise ColumnError("", f"the message's key is no object with {', '.join(self.key)}")
        return self.convert({self.key[0]: value})

    def read_key(self, key: bytes) -> Any:
        """An object with the key's columns, or the one column's value."""
        try:
            value = json.loads(key)
        except (ValueError, UnicodeDecodeError):
            value = key.decode(errors="replace")
        return value.get("payload", value) if isinstance(value, Mapping) else value

    def each(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], read: Callable[[bytes], Mapping[str, Any]]
    ) -> Decoded:
        result = Decoded([], [])
        for place, value in enumerate(values):
            try:
                if value is None:
                    result.deletes[place] = self.tombstone(keys[place])
                else:
                    result.rows.append(self.convert(read(value)))
                    result.places.append(place)
            except ColumnError as error:
                result.bad.append(BadMessage(place, error.column, error.reason))
            except DECODE_ERRORS as error:
                result.bad.append(BadMessage(place, "", f"it cannot be read: {str(error)[:200]}"))
        return result


class FramedDecoder(Decoder):
    """Messages with a schema of their own: that of a file, or one of a registry, which a message names by its id."""

    def __init__(self, columns: Sequence[Column], key: Sequence[str], config: Mapping[str, Any]) -> None:
        super().__init__(columns, key, config)
        self.registry = open_registry(config)

    @abstractmethod
    def read(self, value: bytes) -> Any: ...

    @abstractmethod
    def columns_in(self, value: bytes) -> list[Column]:
        """The columns of one message."""

    def message_columns(self, values: Sequence[bytes]) -> list[Column]:
        columns: dict[str, Column] = {}
        for value in values:
            with suppress(*DECODE_ERRORS, InvalidRequest):
                columns |= {c.name: c for c in self.columns_in(value)}
        return list(columns.values())

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Decoded:
        return self.each(keys, values, self.read)

    def read_key(self, key: bytes) -> Any:
        return self.read(key) if self.registry is not None and key[:1] == b"\0" else super().read_key(key)


class ColumnError(Exception):
    def __init__(self, column: str, reason: str) -> None:
        super().__init__(reason)
        self.column, self.reason = column, reason


class JsonDecoder(Decoder):
    @classmethod
    def topic_columns(cls, topic: str, config: Mapping[str, Any], samples: Sequence[bytes]) -> list[Column]:
        return seen_columns(filter(None, map(find_object, samples)))

    def message_columns(self, values: Sequence[bytes]) -> list[Column]:
        return seen_columns(filter(None, map(find_object, values)))

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Decoded:
        objects = [value for value in values if value is not None and _is_one_object(value)]
        if len(objects) == len(values):
            try:
                rows = self._at_once(objects)
            except DECODE_ERRORS:
                rows = None
            if rows is not None and rows.num_rows == len(values):
                return Decoded(rows, list(range(len(values))))
        return self.each(keys, values, read_object)

    def _at_once(self, values: Sequence[bytes]) -> pa.Table:
        """Arrow reads the whole batch. Raises for an unknown name or a value that Arrow cannot convert."""
        schema = pa.schema([pa.field(c.name, to_arrow_type(c.type)) for c in self.columns])
        text = b"\n".join(value.replace(b"\n", b" ") for value in values)
        return pa_json.read_json(
            BytesIO(text),
            read_options=pa_json.ReadOptions(use_threads=False, block_size=max(1 << 20, len(text) + 1)),
            parse_options=pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
        )


_MORE = re.compile(rb"\}\s*[^\s,}\]]")
"""A second value after an object, or a brace in a text."""


def _is_one_object(value: bytes) -> bool:
    """Whether Arrow may read it: it takes several objects of one message for several rows, and dies of a `null`."""
    text = value.strip()
    return text[:1] == b"{" and text[-1:] == b"}" and _MORE.search(text) is None


def read_object(value: bytes) -> Mapping[str, Any]:
    body = json.loads(value, parse_float=str)
    if not isinstance(body, Mapping):
        raise ValueError("not a JSON object")
    return body


class RawDecoder(Decoder):
    @classmethod
    def topic_columns(cls, topic: str, config: Mapping[str, Any], samples: Sequence[bytes]) -> list[Column]:
        return list(parse_columns(RAW))

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Decoded:
        rows = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
        return Decoded(rows, list(range(len(values))))


def find_object(value: bytes) -> Mapping[str, Any] | None:
    """The JSON object of a message; None: it is none."""
    try:
        body = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, Mapping) else None


def seen_columns(objects: Iterable[Mapping[str, Any]]) -> list[Column]:
    types: dict[str, mt.DataType] = {}
    for body in objects:
        for name, value in body.items():
            kind = _value_type(value)
            if kind is not None:
                types[name] = _wider(types.get(name), kind)
    return [Column(name=name, type=kind) for name, kind in types.items()]


def _value_type(value: Any) -> mt.DataType | None:
    if isinstance(value, bool):
        return mt.BooleanType()
    if isinstance(value, int):
        return mt.Int64Type()
    if isinstance(value, float):
        return mt.Float64Type()
    if isinstance(value, str):
        return mt.StringType()
    if isinstance(value, list):
        kinds = [kind for item in value if (kind := _value_type(item)) is not None]
        return mt.ArrayType(element=kinds[0]) if kinds else None
    if isinstance(value, Mapping):
        fields = [mt.RowField(name=n, type=kind) for n, v in value.items() if (kind := _value_type(v)) is not None]
        return mt.RowType(fields=tuple(fields)) if fields else None
    return None


def _wider(before: mt.DataType | None, kind: mt.DataType) -> mt.DataType:
    if before is None or before == kind:
        return kind
    numbers = (mt.Int64Type, mt.Float64Type)
    return mt.Float64Type() if isinstance(before, numbers) and isinstance(kind, numbers) else mt.StringType()
