# SPDX-License-Identifier: Apache-2.0
"""How large an Arrow stream says it is, read from its headers before anything is decoded: compressed buffers say their
length in front, so a small message that unpacks into a large one is known as such.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from lakeward.errors import InvalidRequest

_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2
_MOST_BUFFERS = 100_000


def declared_bytes(stream: bytes, what: str) -> int:
    """The bytes of all batches once they are unpacked. Raises `InvalidRequest` for a header that cannot be read."""
    total = 0
    try:
        messages = pa.ipc.MessageReader.open_stream(stream)
        while True:
            try:
                message = messages.read_next_message()
            except StopIteration:
                return total
            total += _message_bytes(message.metadata.to_pybytes(), memoryview(message.body or b""))
    except (pa.ArrowException, struct.error, IndexError, OSError) as error:
        raise InvalidRequest(what=what, reason=f"malformed Arrow stream: {error}") from error


def _message_bytes(header: bytes, body: memoryview) -> int:
    message = _Table(header, _u32(header, 0))
    kind, batch = message.byte(1), message.table(2)
    if kind == _DICTIONARY_BATCH and batch is not None:
        batch = batch.table(1)
    elif kind != _RECORD_BATCH:
        return 0
    if batch is None:
        return 0
    is_compressed, total = batch.table(3) is not None, 0
    for offset, length in batch.pairs(2):
        size = length
        if is_compressed and length >= 8:
            size = max(length, struct.unpack_from("<q", body, offset)[0])
        if size < 0:
            raise IndexError("a buffer of a negative length")
        total += size
    return total + batch.long(0)


class _Table:
    """A flatbuffers table, as far as it is needed here."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data, self._at = data, position
        self._fields = position - struct.unpack_from("<i", data, position)[0]
        if self._fields < 0:
            raise IndexError("a table without fields")

    def _field(self, number: int) -> int | None:
        place = 4 + 2 * number
        if place >= struct.unpack_from("<H", self._data, self._fields)[0]:
            return None
        offset: int = struct.unpack_from("<H", self._data, self._fields + place)[0]
        return self._at + offset if offset else None

    def byte(self, number: int) -> int:
        at = self._field(number)
        return 0 if at is None else self._data[at]

    def long(self, number: int) -> int:
        at = self._field(number)
        return 0 if at is None else max(0, struct.unpack_from("<q", self._data, at)[0])

    def table(self, number: int) -> _Table | None:
        at = self._field(number)
        return None if at is None else _Table(self._data, at + _u32(self._data, at))

    def pairs(self, number: int) -> list[tuple[int, int]]:
        """A vector of structs of two longs."""
        at = self._field(number)
        if at is None:
            return []
        start = at + _u32(self._data, at)
        count = _u32(self._data, start)
        if count > _MOST_BUFFERS:
            raise IndexError(f"{count} buffers")
        return [struct.unpack_from("<qq", self._data, start + 4 + 16 * i) for i in range(count)]


def _u32(data: bytes, at: int) -> int:
    number: int = struct.unpack_from("<I", data, at)[0]
    return number
