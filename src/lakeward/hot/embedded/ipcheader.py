# SPDX-License-Identifier: Apache-2.0
"""Headers of Arrow IPC messages, read without Arrow: where a batch's buffers are and whether they are compressed."""

from __future__ import annotations

import struct

_read_i32, _read_u16 = struct.Struct("<i").unpack_from, struct.Struct("<H").unpack_from
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_MOST_BUFFERS = 100_000

MALFORMED = (struct.error, IndexError)
"""Errors that reading an invalid header raises."""


class BatchLayout:
    """Layout of the body of a message with rows, as its header describes it."""

    def __init__(self, batch: _Table) -> None:
        self._batch = batch
        self.is_compressed = batch.table(3) is not None

    @property
    def rows(self) -> int:
        return self._batch.long(0)

    @property
    def buffers(self) -> list[tuple[int, int]]:
        """Where each begins in the body, and its bytes there. A compressed one begins with eight bytes of its own that
        say how long it will be.
        """
        return self._batch.pairs(2)


def read_layout(header: bytes) -> BatchLayout | None:
    """None for a message that brings no rows, such as a schema. Raises one of `MALFORMED`."""
    message = _Table(header, _u32(header, 0))
    kind, found = message.byte(1), message.table(2)
    if kind == _DICTIONARY_BATCH and found is not None:
        found = found.table(1)
    elif kind != _RECORD_BATCH:
        return None
    if found is None:
        return None
    return BatchLayout(found)


class _Table:
    """A flatbuffers table, as far as it is needed here."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data, self._at = data, position
        self._fields: int = position - _read_i32(data, position)[0]
        if self._fields < 0:
            raise IndexError("a table without fields")
        self._end: int = _read_u16(data, self._fields)[0]

    def _field(self, number: int) -> int | None:
        place = 4 + 2 * number
        if place >= self._end:
            return None
        offset: int = _read_u16(self._data, self._fields + place)[0]
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
