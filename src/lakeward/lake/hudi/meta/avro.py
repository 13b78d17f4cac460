# SPDX-License-Identifier: Apache-2.0
"""Avro as Hudi's timeline and log blocks use it: records by their schema, in container files or bare."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Schema = Any
"""Parsed JSON: a name, a list (union), or an object."""

_MAGIC = b"Obj\x01"
_MARK = 16
_FIXED = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}


class _Source:
    def __init__(self, data: bytes, names: dict[str, Schema]) -> None:
        self.data, self.at, self._names = data, 0, names

    def take(self, count: int) -> bytes:
        part = self.data[self.at : self.at + count]
        if count < 0 or len(part) < count:
            raise ValueError("it ends in the middle")
        self.at += count
        return part

    def long(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    def value(self, schema: Schema) -> Any:
        if isinstance(schema, list):
            return self.value(schema[self._index(len(schema))])
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            return self.value(kind)
        reader = _READERS.get(kind)
        if reader is not None:
            return reader(self, schema)
        return self.value(self._names[kind])

    def record(self, schema: Schema) -> dict[str, Any]:
        return {field["name"]: self.value(field["type"]) for field in schema["fields"]}

    def enum(self, schema: Schema) -> str:
        return str(schema["symbols"][self._index(len(schema["symbols"]))])

    def items(self) -> Iterator[None]:
        while count := self.long():
            if count < 0:  # the block says its size in bytes, too
                count = -count
                self.long()
            for _ in range(count):
                yield

    def _index(self, count: int) -> int:
        index = self.long()
        if not 0 <= index < count:
            raise ValueError(f"branch {index} of {count}")
        return index


_READERS: dict[str, Callable[[_Source, Schema], Any]] = {
    "null": lambda source, _: None,
    "boolean": lambda source, _: source.take(1) != b"\0",
    "int": lambda source, _: source.long(),
    "long": lambda source, _: source.long(),
    "float": lambda source, _: _FIXED["float"].unpack(source.take(4))[0],
    "double": lambda source, _: _FIXED["double"].unpack(source.take(8))[0],
    "bytes": lambda source, _: source.take(source.long()),
    "string": lambda source, _: source.take(source.long()).decode(),
    "fixed": lambda source, schema: source.take(schema["size"]),
    "enum": lambda source, schema: source.enum(schema),
    "array": lambda source, schema: [source.value(schema["items"]) for _ in source.items()],
    "map": lambda source, schema: {
        source.take(source.long()).decode(): source.value(schema["values"]) for _ in source.items()
    },
    "record": lambda source, schema: source.record(schema),
}


def read_container(data: bytes) -> list[Any]:
    """The records of a container file. Raises `ValueError` where it is none, or broken."""
    if data[:4] != _MAGIC:
        raise ValueError("it is no Avro file")
    try:
        source = _Source(data, {})
        source.at = 4
        meta = source.value({"type": "map", "values": "bytes"})
        schema, codec = json.loads(meta["avro.schema"]), meta.get("avro.codec", b"null").decode()
        mark, records, names = source.take(_MARK), [], _named(schema)
        while source.at < len(data):
            count, body = source.long(), source.take(source.long())
            block = _Source(_unpacked(body, codec), names)
            records += [block.value(schema) for _ in range(count)]
            if source.take(_MARK) != mark:
                raise ValueError("a block has no end mark")
    except (KeyError, IndexError, TypeError, struct.error, zlib.error) as error:
        raise ValueError(f"it is a broken Avro file: {error!r}") from error
    return records


def _unpacked(body: bytes, codec: str) -> bytes:
    if codec == "deflate":
        return zlib.decompress(body, -15)
    if codec == "null":
        return body
    raise ValueError(f"its codec is {codec}")


def write_container(schema: Schema, record: Mapping[str, Any]) -> bytes:
    """A file of one record."""
    mark, body = os.urandom(_MARK), bytearray()
    _write(body, schema, record, _named(schema))
    out = bytearray(_MAGIC)
    header = {"avro.schema": json.dumps(schema).encode(), "avro.codec": b"null"}
    _write(out, {"type": "map", "values": "bytes"}, header, {})
    out += mark
    _long(out, 1)
    _long(out, len(body))
    return bytes(out + body + mark)


def read_bare(schema: Schema, data: bytes) -> Any:
    """A value without a file around it. Raises `ValueError`."""
    try:
        return _Source(data, _named(schema)).value(schema)
    except (KeyError, IndexError, TypeError, struct.error) as error:
        raise ValueError(f"it is no value of its Avro schema: {error!r}") from error


def _named(schema: Schema) -> dict[str, Schema]:
    """Avro tells a named type once, and by its name alone thereafter."""
    names: dict[str, Schema] = {}

    def look(kind: Schema) -> None:
        if isinstance(kind, list):
            for branch in kind:
                look(branch)
        elif isinstance(kind, dict):
            if "name" in kind and kind.get("type") in ("record", "fixed", "enum"):
                names[kind["name"]] = kind
                names[f"{kind.get('namespace', '')}.{kind['name']}"] = kind
            for part in (*(f["type"] for f in kind.get("fields", ())), kind.get("items"), kind.get("values")):
                look(part)
            look(kind["type"] if not isinstance(kind["type"], str) else None)

    look(schema)
    return names


def _write(out: bytearray, schema: Schema, value: Any, names: dict[str, Schema]) -> None:
    if isinstance(schema, list):
        branch = _branch(schema, value)
        _long(out, branch)
        _write(out, schema[branch], value, names)
        return
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, dict | list):
        _write(out, kind, value, names)
    elif kind == "record":
        for field in schema["fields"]:
            _write(out, field["type"], value.get(field["name"], field.get("default")), names)
    elif kind in ("array", "map"):
        _write_items(out, schema, value, names)
    elif kind in ("int", "long"):
        _long(out, value)
    elif kind in ("string", "bytes"):
        raw = value.encode() if isinstance(value, str) else value
        _long(out, len(raw))
        out += raw
    elif kind == "boolean":
        out.append(bool(value))
    elif kind in _FIXED:
        out += _FIXED[kind].pack(value)
    elif kind != "null":
        _write(out, names[kind], value, names)


def _write_items(out: bytearray, schema: Schema, value: Any, names: dict[str, Schema]) -> None:
    if value:
        _long(out, len(value))
        for item in value:
            if schema["type"] == "map":
                _write(out, "string", item, names)
                _write(out, schema["values"], value[item], names)
            else:
                _write(out, schema["items"], item, names)
    out.append(0)


def _branch(union: list[Schema], value: Any) -> int:
    """Unions of the timeline are null and one other."""
    return next(i for i, kind in enumerate(union) if (kind == "null") == (value is None))


def _long(out: bytearray, value: int) -> None:
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
