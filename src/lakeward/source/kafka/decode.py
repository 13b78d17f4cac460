# SPDX-License-Identifier: Apache-2.0
"""Messages of Kafka as rows: JSON, Avro, Protobuf, Debezium's envelopes, or as they are.

A decoder works on one task's messages as Arrow; what cannot be decoded becomes a `BadMessage`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pyarrow as pa
import pyarrow.json as pa_json

from lakeward.client.jsonvalues import plan_converter
from lakeward.errors import InvalidRequest
from lakeward.model import Column, to_arrow_type
from lakeward.source.changes import UNSET

UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's placeholder for a TOAST value that did not change."""

REGISTRY_S = 10
_ERRORS = (ValueError, TypeError, KeyError, IndexError, OverflowError, ArithmeticError, pa.ArrowException, EOFError)


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

    def convert(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """JSON values as the columns take them. Raises `ColumnError`."""
        row: dict[str, Any] = {}
        for name, cell in value.items():
            convert = self._converters.get(name)
            if convert is None:
                raise ColumnError(name, "the table has no such column")
            try:
                row[name] = convert(cell)
            except _ERRORS as error:
                raise ColumnError(name, str(error)) from error
        return row

    def tombstone(self, key: bytes | None) -> dict[str, Any]:
        """The primary key that a message key names: a JSON object, or the one column's value. Raises `ColumnError`."""
        if not self.key:
            raise ColumnError("", "a message without a value, in a table without a primary key")
        if key is None:
            raise ColumnError("", "a tombstone without a key")
        try:
            value = json.loads(self.unpack_key(key))
        except (ValueError, UnicodeDecodeError):
            value = key.decode(errors="replace")
        if isinstance(value, Mapping):
            value = value.get("payload", value)
        if isinstance(value, Mapping):
            return self.convert({name: value.get(name) for name in self.key})
        if len(self.key) > 1:
            raise ColumnError("", f"the message's key is no object with {', '.join(self.key)}")
        return self.convert({self.key[0]: value})

    def unpack_key(self, key: bytes) -> bytes:
        return key

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
            except _ERRORS as error:
                result.bad.append(BadMessage(place, "", f"it cannot be read: {str(error)[:200]}"))
        return result


class ColumnError(Exception):
    def __init__(self, column: str, reason: str) -> None:
        super().__init__(reason)
        self.column, self.reason = column, reason


class JsonDecoder(Decoder):
    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Decoded:
        if all(values):
            try:
                rows = self._at_once([value for value in values if value])
            except (pa.ArrowException, ValueError):
                rows = None
            if rows is not None and rows.num_rows == len(values):
                return Decoded(rows, list(range(len(values))))
        return self.each(keys, values, _object)

    def _at_once(self, values: Sequence[bytes]) -> pa.Table:
        """Arrow reads the whole batch. Raises for an unknown name or a value that Arrow cannot convert."""
        schema = pa.schema([pa.field(c.name, to_arrow_type(c.type)) for c in self.columns])
        text = b"\n".join(value.replace(b"\n", b" ") for value in values)
        return pa_json.read_json(
            BytesIO(text),
            read_options=pa_json.ReadOptions(use_threads=False, block_size=max(1 << 20, len(text) + 1)),
            parse_options=pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
        )


def _object(value: bytes) -> Mapping[str, Any]:
    body = json.loads(value, parse_float=str)
    if not isinstance(body, Mapping):
        raise ValueError("not a JSON object")
    return body


class RawDecoder(Decoder):
    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Decoded:
        rows = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
        return Decoded(rows, list(range(len(values))))


class AvroDecoder(Decoder):
    """Bare with a schema file, else in Confluent's framing with a schema registry."""

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Decoded:
        return self.each(keys, values, self.read)

    def read(self, value: bytes) -> Mapping[str, Any]:
        import fastavro

        schema, at = self._schema(value)
        body: Any = fastavro.schemaless_reader(BytesIO(value[at:]), schema, None)
        return body  # type: ignore[no-any-return]

    def unpack_key(self, key: bytes) -> bytes:
        if self.config.get("schema_registry") and key[:1] == b"\0":
            return json.dumps(self.read(key), default=str).encode()
        return key

    def _schema(self, value: bytes) -> tuple[Any, int]:
        if self.config.get("schema_file"):
            return file_schema(str(self.config["schema_file"])), 0
        if value[:1] != b"\0" or len(value) < 5:
            raise ValueError("it does not begin with a schema id")
        return registry_schema(str(self.config["schema_registry"]), int.from_bytes(value[1:5])), 5


class ProtobufDecoder(Decoder):
    """A message of a descriptor set, bare or behind the id and indexes of Confluent's framing."""

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Decoded:
        from google.protobuf.json_format import MessageToDict

        kind = message_class(str(self.config["schema_file"]), str(self.config["message"]))
        is_framed = bool(self.config.get("schema_registry"))

        def read(value: bytes) -> Mapping[str, Any]:
            message = kind.FromString(value[_frame_length(value) :] if is_framed else value)
            body: Mapping[str, Any] = MessageToDict(
                message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
            return body

        return self.each(keys, values, read)


class DebeziumDecoder(AvroDecoder):
    """Envelopes in JSON, or in Avro with a schema registry."""

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Decoded:
        result = Decoded([], [])
        for place, value in enumerate(values):
            if value is None:
                continue  # the tombstone behind a delete
            try:
                self._take(place, keys[place], value, result)
            except ColumnError as error:
                result.bad.append(BadMessage(place, error.column, error.reason))
            except _ERRORS as error:
                result.bad.append(BadMessage(place, "", f"it is no envelope: {str(error)[:200]}"))
        return result

    def _take(self, place: int, key: bytes | None, value: bytes, result: Decoded) -> None:
        body = self.read(value) if self.config.get("schema_registry") else _object(value)
        schema = body.get("schema")
        envelope = body["payload"] if isinstance(schema, Mapping) or "payload" in body else body
        kinds = _envelope_kinds(json.dumps(schema)) if isinstance(schema, Mapping) else {}
        op = envelope["op"]
        if op in ("c", "r", "u"):
            after = {name: _semantic(cell, kinds.get(name, "")) for name, cell in envelope["after"].items()}
            unset = [name for name, cell in after.items() if cell == UNAVAILABLE]
            row = self.convert({name: cell for name, cell in after.items() if name not in unset})
            row.update(dict.fromkeys(unset, UNSET))
            result.is_partial = result.is_partial or bool(unset)
            result.rows.append(row)
            result.places.append(place)
        elif op == "d":
            before = envelope.get("before") or {}
            if all(name in before for name in self.key):
                cells = {name: _semantic(before[name], kinds.get(name, "")) for name in self.key}
                result.deletes[place] = self.convert(cells)
            else:
                result.deletes[place] = self.tombstone(key)
        elif op == "t":
            result.truncates.append(place)
        elif op != "m":
            raise ValueError(f"op {op!r}")


@lru_cache(64)
def _envelope_kinds(schema: str) -> dict[str, str]:
    """Column -> Debezium's semantic type."""
    for part in json.loads(schema).get("fields", ()):
        if part.get("field") == "after":
            return {c["field"]: str(c.get("name", "")) for c in part.get("fields", ())}
    return {}


def _semantic(value: Any, kind: str) -> Any:
    """A value of Debezium's semantic types as JSON would have it."""
    from datetime import UTC, date, datetime, timedelta

    if value is None or not kind or not isinstance(value, int):
        return value
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    if kind == "io.debezium.time.Date":
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    for name, unit in (("MicroTimestamp", 1), ("NanoTimestamp", 0), ("Timestamp", 1000)):
        if kind == f"io.debezium.time.{name}":
            micros = value * unit if unit else value // 1000
            return (epoch + timedelta(microseconds=micros)).replace(tzinfo=None).isoformat()
    return value


DECODERS: dict[str, type[Decoder]] = {
    "json": JsonDecoder,
    "avro": AvroDecoder,
    "protobuf": ProtobufDecoder,
    "debezium": DebeziumDecoder,
    "raw": RawDecoder,
}


# ---- schemas -------------------------------------------------------------------------------------------------------
def ask_registry(url: str, path: str) -> Any:
    """Raises `InvalidRequest`."""
    if not url.startswith(("http://", "https://")):
        raise InvalidRequest(what=f"--schema-registry {url}", reason="it is no HTTP URL")
    try:
        with urlopen(Request(url.rstrip("/") + path), timeout=REGISTRY_S) as answer:  # noqa: S310 - checked above
            return json.loads(answer.read(16 << 20))
    except (OSError, ValueError) as error:
        raise InvalidRequest(what=f"schema registry {url}", reason=f"{path}: {error}") from error


@lru_cache(1000)
def registry_schema(url: str, schema_id: int) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(ask_registry(url, f"/schemas/ids/{schema_id}")["schema"]))


@lru_cache(10)
def file_schema(path: str) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(Path(path).read_text()))


@lru_cache(10)
def message_class(path: str, message: str) -> Any:
    """Raises `InvalidRequest`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(path).read_bytes())
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except (OSError, KeyError, TypeError, ValueError) as error:
        reason = f"{error}; make it with `protoc --include_imports --descriptor_set_out=FILE`"
        raise InvalidRequest(what=f"message {message} of {path}", reason=reason) from error


def _frame_length(value: bytes) -> int:
    """A zero byte, the schema's id, then a count and as many indexes as varints; a single 0 means the first message."""
    if value[:1] != b"\0":
        raise ValueError("it does not begin with a schema id")
    count, at = _varint(value, 5)
    for _ in range(count):
        _, at = _varint(value, at)
    return at


def _varint(value: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = value[at]
        result, shift, at = result | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), at
