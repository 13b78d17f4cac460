# SPDX-License-Identifier: Apache-2.0
"""How large the batch in a put's message says it is: Arrow unpacks compressed buffers before anybody can charge them,
so the lengths that they announce are summed while they pass.

A message is Flight's `FlightData`: descriptor, header, metadata and, last, the body. Arrow's clients write the parts in
this order; a message in another order is refused, as its body would have to be kept until the header is known.
"""

from __future__ import annotations

import struct

from lakeward.hot.embedded.ipcheader import MALFORMED, read_layout

_DESCRIPTOR, _HEADER, _METADATA, _BODY = 0x0A, 0x12, 0x1A, 8002
"""Protocol buffers' tags: the field's number, and that its length follows."""
_LONGEST_HEADER = 4 << 20
"""Bytes before the body, all in all. A schema of ten thousand columns has about two million."""
_LENGTH = 8
"""Bytes in front of a compressed buffer."""


class Oversized(Exception):
    """The text says why the message is not taken."""


class PutScan:
    """One message's bytes as they come. `is_done`: the rest of it needs no look."""

    def __init__(self, size: int, limit: int) -> None:
        """`size` of the message; `limit` for its batch."""
        self._size, self._limit = size, limit
        self._head = bytearray()
        self._probes: list[int] = []
        self._is_in_body = False
        self._total = self._body_at = self._wanted = 0
        self._piece = b""
        self.is_done = False

    def feed(self, data: memoryview) -> None:
        """Raises `Oversized`."""
        if self._is_in_body:
            self._watch(data)
            return
        if self._head:
            self._head += data
            if len(self._head) < self._wanted:
                return
            data = memoryview(bytes(self._head))
        body_at = self._read_head(data)
        if body_at is not None:
            self._is_in_body = True
            self._watch(data[body_at:])
        elif not self._head:
            self._head += data

    def _read_head(self, head: memoryview) -> int | None:
        """Where the body begins, once it does."""
        at, last, header = 0, 0, b""
        self._wanted = len(head) + 1
        try:
            while True:
                tag, at = _varint(head, at)
                size, at = _varint(head, at)
                if tag == _BODY:
                    break
                if tag not in (_DESCRIPTOR, _HEADER, _METADATA) or tag <= last:
                    raise Oversized("the parts of a message are not in Flight's order")
                if at + size > min(len(head), _LONGEST_HEADER):
                    self._wanted = at + size
                    raise IndexError
                if tag == _HEADER:
                    header = bytes(head[at : at + size])
                last, at = tag, at + size
        except IndexError:
            if self._wanted > _LONGEST_HEADER:
                raise Oversized(f"a header of more than {_LONGEST_HEADER} bytes") from None
            return None
        if at + size != self._size:
            raise Oversized("something follows the body of a message")
        self._plan(header)
        return at

    def _plan(self, header: bytes) -> None:
        try:
            layout = read_layout(header) if header else None
            buffers = layout.buffers if layout is not None and layout.is_compressed else []
        except MALFORMED as error:
            raise Oversized(f"malformed Arrow data: {error}") from error
        self._probes = sorted((offset for offset, length in buffers if length >= _LENGTH), reverse=True)

    def _watch(self, data: memoryview) -> None:
        """Picks the lengths out of a piece of the body; one may be cut by the piece's end."""
        if self._piece:
            data = memoryview(self._piece + bytes(data))
            self._body_at -= len(self._piece)
            self._piece = b""
        stop = self._body_at + len(data)
        while self._probes and self._probes[-1] < stop:
            offset = self._probes[-1] - self._body_at
            if offset < 0:
                raise Oversized("malformed Arrow data: buffers lie over each other")
            if offset + _LENGTH > len(data):
                self._piece = bytes(data[offset:])
                break
            self._count(max(0, struct.unpack_from("<q", data, offset)[0]))
            self._probes.pop()
        self._body_at = stop
        self.is_done = not self._probes

    def _count(self, size: int) -> None:
        self._total += size
        if self._total > self._limit:
            raise Oversized(
                f"a batch that unpacks to more than {self._total} bytes came, at most {self._limit} are taken; "
                "send smaller ones"
            )


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    number = data[at]
    if number < 0x80:
        return number, at + 1
    number = 0
    for shift in (0, 7, 14, 21, 28):
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
    raise Oversized("malformed Flight data")
