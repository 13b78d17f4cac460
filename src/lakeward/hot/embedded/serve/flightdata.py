# SPDX-License-Identifier: Apache-2.0
"""Flight's messages on the wire: protocol buffers around Arrow's own messages. Rows are not looked at."""

from __future__ import annotations

import struct
from typing import NamedTuple

import pyarrow as pa

from lakeward.errors import InvalidRequest

_MOST_FIELDS = 64
"""Flight's messages have up to seven. A message of millions of empty ones would keep a core busy."""
_LONGEST_VARINT = 10
_LONGEST_HEADER = 4 << 20
"""Bytes of Arrow's header. A schema of ten thousand columns has about two million."""
_SMALL_BYTES = 64 << 10
"""A body up to this size is copied behind its header: that costs less than a reader of pieces."""
_DESCRIPTOR, _HEADER, _METADATA, _BODY = 1, 2, 3, 1000
_COMMAND = 2
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class FlightData(NamedTuple):
    """One message of a stream of batches."""

    descriptor: memoryview
    header: memoryview
    metadata: memoryview
    body: memoryview


def read_fields(message: bytes | memoryview, what: str) -> dict[int, memoryview]:
    """Its fields of bytes, by number; the last of several. Raises `InvalidRequest`: peers send anything."""
    view = memoryview(message)
    fields: dict[int, memoryview] = {}
    at = 0
    try:
        for _ in range(_MOST_FIELDS):
            if at == len(view):
                return fields
            tag, at = _read_varint(view, at)
            kind = tag & 7
            if kind == _LENGTH:
                size, at = _read_varint(view, at)
                if size > len(view) - at:
                    raise IndexError
                fields[tag >> 3] = view[at : at + size]
                at += size
            elif kind == _VARINT:
                _, at = _read_varint(view, at)
            else:
                at += {_FIXED64: 8, _FIXED32: 4}[kind]
    except (IndexError, KeyError):
        pass
    raise InvalidRequest(what=what, reason="malformed Flight message")


def read_flight_data(message: bytes, what: str) -> FlightData:
    """Raises `InvalidRequest`."""
    fields, empty = read_fields(message, what), memoryview(b"")
    data = FlightData(*(fields.get(number, empty) for number in (_DESCRIPTOR, _HEADER, _METADATA, _BODY)))
    if len(data.header) > _LONGEST_HEADER:
        reason = f"an Arrow header of {len(data.header)} bytes came, at most {_LONGEST_HEADER} are taken"
        raise InvalidRequest(what=what, reason=reason)
    return data


def read_command(descriptor: memoryview) -> bytes:
    """Raises `InvalidRequest`."""
    command = read_fields(descriptor, "do_put").get(_COMMAND)
    if command is None:
        raise InvalidRequest(what="do_put", reason="the descriptor carries a command")
    return bytes(command)


def read_schema(data: FlightData) -> pa.Schema:
    """Raises Arrow's errors."""
    return pa.ipc.read_schema(pa.py_buffer(_prefix(data.header) + bytes(data.header)))


def read_batch(data: FlightData, schema: pa.Schema) -> pa.RecordBatch:
    """Its buffers lie in the message. Raises Arrow's errors."""
    prefix = _prefix(data.header)
    if len(data.body) <= _SMALL_BYTES:
        return pa.ipc.read_record_batch(pa.py_buffer(b"".join((prefix, data.header, data.body))), schema)
    pieces = _Pieces([memoryview(prefix), data.header, data.body])
    return pa.ipc.read_record_batch(pa.ipc.read_message(pa.PythonFile(pieces, mode="r")), schema)


def schema_message(schema: pa.Schema) -> bytes:
    return _data_message(memoryview(schema.serialize()), b"")


def batch_message(batch: pa.RecordBatch, metadata: bytes = b"") -> bytes:
    return _data_message(memoryview(batch.serialize()), metadata)


def write_field(number: int, payload: bytes) -> bytes:
    """One field of bytes; a message of several is their concatenation."""
    return _tag(number, len(payload)) + payload


def _data_message(encapsulated: memoryview, metadata: bytes) -> bytes:
    """Arrow's message as a stream has it: a mark, the header's length, the header, the body."""
    body_at = 8 + struct.unpack_from("<i", encapsulated, 4)[0]
    header, body = encapsulated[8:body_at], encapsulated[body_at:]
    told = write_field(_METADATA, metadata) if metadata else b""
    return b"".join((_tag(_HEADER, len(header)), header, told, _tag(_BODY, len(body)), body))


def _prefix(header: memoryview) -> bytes:
    return b"\xff\xff\xff\xff" + struct.pack("<i", len(header))


def _tag(number: int, size: int) -> bytes:
    return _write_varint(number << 3 | _LENGTH) + _write_varint(size)


def _write_varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    number = data[at]
    if number < 0x80:
        return number, at + 1
    number = 0
    for shift in range(0, 7 * _LONGEST_VARINT, 7):
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
    raise IndexError("a number without an end")


class _Pieces:
    """A file whose reads are these pieces, without a copy."""

    closed = False

    def __init__(self, pieces: list[memoryview]) -> None:
        self._pieces = pieces

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True

    def read_buffer(self, size: int) -> pa.Buffer:
        piece = self._pieces[0] if self._pieces else memoryview(b"")
        if len(piece) <= size:
            self._pieces = self._pieces[1:]
        else:
            self._pieces[0], piece = piece[size:], piece[:size]
        return pa.py_buffer(piece)

    def read(self, size: int) -> bytes:
        return bytes(self.read_buffer(size))
