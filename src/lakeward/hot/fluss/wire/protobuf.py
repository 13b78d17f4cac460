# SPDX-License-Identifier: Apache-2.0
"""Protocol buffers (proto2) driven by tables of fields: as much as Fluss's messages use. Values are plain dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from lakeward.errors import InvalidRequest

Message = dict[str, Any]
_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5
_WORD = 1 << 64


class WireKind(Enum):
    INT = auto()
    """int32, int64 and bool alike: a varint of the 64-bit pattern."""

    TEXT = auto()
    BYTES = auto()
    MESSAGE = auto()


@dataclass(frozen=True)
class Field:
    name: str
    number: int
    kind: WireKind = WireKind.INT
    repeated: bool = False
    packed: bool = False
    shape: Shape | None = None


@dataclass(frozen=True)
class Shape:
    """One message: its fields by name for writing, by number for reading. Unknown numbers are skipped."""

    name: str
    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_number", {f.number: f for f in self.fields})

    by_number: Mapping[int, Field] = None  # type: ignore[assignment]


def integer(name: str, number: int) -> Field:
    return Field(name, number)


def integers(name: str, number: int, *, packed: bool = False) -> Field:
    return Field(name, number, repeated=True, packed=packed)


def text(name: str, number: int) -> Field:
    return Field(name, number, WireKind.TEXT)


def texts(name: str, number: int) -> Field:
    return Field(name, number, WireKind.TEXT, repeated=True)


def raw(name: str, number: int) -> Field:
    return Field(name, number, WireKind.BYTES)


def one(name: str, number: int, shape: Shape) -> Field:
    return Field(name, number, WireKind.MESSAGE, shape=shape)


def many(name: str, number: int, shape: Shape) -> Field:
    return Field(name, number, WireKind.MESSAGE, repeated=True, shape=shape)


# ---- writing ---------------------------------------------------------------------------------------------------------
def encode(shape: Shape, values: Mapping[str, Any]) -> bytes:
    """A value of None is left out. Raises `InvalidRequest` for a name that the message does not have."""
    unknown = set(values) - {f.name for f in shape.fields}
    if unknown:
        raise InvalidRequest(what=shape.name, reason=f"it has no field {', '.join(sorted(unknown))}")
    out = bytearray()
    for field in shape.fields:
        value = values.get(field.name)
        if value is not None:
            _encode_field(out, field, value)
    return bytes(out)


def _encode_field(out: bytearray, field: Field, value: Any) -> None:
    if field.packed:
        body = bytearray()
        for item in value:
            write_varint(body, item)
        _write_sized(out, field.number, body)
        return
    for item in value if field.repeated else (value,):
        if field.kind is WireKind.INT:
            write_varint(out, field.number << 3 | _VARINT)
            write_varint(out, int(item))
        else:
            _write_sized(out, field.number, _bytes_of(field, item))


def _bytes_of(field: Field, item: Any) -> bytes:
    if field.kind is WireKind.MESSAGE:
        assert field.shape is not None
        return encode(field.shape, item)
    return item.encode() if isinstance(item, str) else bytes(item)


def _write_sized(out: bytearray, number: int, body: bytes | bytearray) -> None:
    write_varint(out, number << 3 | _SIZED)
    write_varint(out, len(body))
    out += body


def write_varint(out: bytearray, value: int) -> None:
    """Negative numbers take ten bytes: the 64-bit pattern."""
    value %= _WORD
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


# ---- reading ---------------------------------------------------------------------------------------------------------
def decode(shape: Shape, data: bytes | bytearray | memoryview) -> Message:
    """Missing fields are missing keys; repeated ones are lists. BYTES come as views into `data`, nothing is copied.

    Raises `InvalidRequest` for bytes that are no message."""
    view, message = memoryview(data), Message()
    try:
        at = 0
        while at < len(view):
            key, at = read_varint(view, at)
            at = _decode_field(shape, message, key, view, at)
    except IndexError:
        raise InvalidRequest(what=shape.name, reason="the message ends in the middle of a field") from None
    return message


def _decode_field(shape: Shape, message: Message, key: int, view: memoryview, at: int) -> int:
    field, wire = shape.by_number.get(key >> 3), key & 7
    value: Any
    if wire == _VARINT:
        value, at = read_varint(view, at)
        value = value - _WORD if value >> 63 else value
    elif wire == _SIZED:
        size, at = read_varint(view, at)
        if at + size > len(view):
            raise IndexError
        value, at = view[at : at + size], at + size
    elif wire in (_FIXED32, _FIXED64):
        return at + (4 if wire == _FIXED32 else 8)
    else:
        raise InvalidRequest(what=shape.name, reason=f"wire type {wire} is not known")
    if field is not None:
        _store(message, field, value, is_sized=wire == _SIZED)
    return at


def _store(message: Message, field: Field, value: Any, *, is_sized: bool) -> None:
    if field.kind is WireKind.INT and is_sized:
        message.setdefault(field.name, []).extend(_unpack(value))
        return
    if field.kind is WireKind.TEXT:
        value = bytes(value).decode()
    elif field.kind is WireKind.MESSAGE:
        assert field.shape is not None
        value = decode(field.shape, value)
    if field.repeated:
        message.setdefault(field.name, []).append(value)
    else:
        message[field.name] = value


def _unpack(view: memoryview) -> Sequence[int]:
    values, at = [], 0
    while at < len(view):
        value, at = read_varint(view, at)
        values.append(value - _WORD if value >> 63 else value)
    return values


def read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
