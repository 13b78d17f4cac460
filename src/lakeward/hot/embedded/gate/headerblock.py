# SPDX-License-Identifier: Apache-2.0
"""Header blocks (HPACK, RFC 7541): read with their table, written as plain literals that need none."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from lakeward.hot.embedded.gate.frames import ENHANCE_YOUR_CALM, PROTOCOL_ERROR, Misbehaved

Field = tuple[bytes, bytes]

LONGEST = 16 * 1024
"""Bytes of all names and values, 32 more for each, as HTTP/2 counts them; gRPC's own limit."""
TABLE_BYTES = 4096
_EACH = 32

_STATIC: tuple[Field, ...] = (
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    *((b":status", code) for code in b"200 204 206 304 400 404 500".split()),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    *(
        (name, b"")
        for name in (
            b"accept-language accept-ranges accept access-control-allow-origin age allow authorization cache-control "
            b"content-disposition content-encoding content-language content-length content-location content-range "
            b"content-type cookie date etag expect expires from host if-match if-modified-since if-none-match if-range "
            b"if-unmodified-since last-modified link location max-forwards proxy-authenticate proxy-authorization "
            b"range referer refresh retry-after server set-cookie strict-transport-security transfer-encoding "
            b"user-agent vary via www-authenticate"
        ).split()
    ),
)

_LENGTHS = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c060a0a0c0d06080b0a0a080b080606060505050606060606"
    "060607080f060c0a0d06070707070707070707070707070707070707070707070807080d130d0e060f050605060506060605070706060605"
    "06070605050607070707070f0b0e0d1c14161414161616171617171717171817181816171817171717151617161717181615141616171715"
    "1716161815161717151516151716171714161616171616171a1a1413161716191a1a1a1b1b1a181913151a1b1b1a1b1815151a1a1c1b1b1b"
    "14181415161515171616191918181a171a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a1e"
)
"""Bits of each byte's Huffman code, and of the end's. The codes follow: shorter ones first, then by byte."""
_MOST_BITS = 30


def _codes() -> tuple[list[int], list[tuple[int, int]]]:
    """(each code at the left of 30 bits, ascending; its byte and bits)."""
    firsts, symbols, code, bits = [], [], 0, 0
    for symbol in sorted(range(len(_LENGTHS)), key=lambda s: (_LENGTHS[s], s)):
        code <<= _LENGTHS[symbol] - bits
        bits = _LENGTHS[symbol]
        firsts.append(code << (_MOST_BITS - bits))
        symbols.append((symbol, bits))
        code += 1
    return firsts, symbols


_FIRSTS, _SYMBOLS = _codes()
_END = 256


class HeaderReader:
    """One per connection: later blocks refer to fields of earlier ones. Raises `Misbehaved`, after which it is of no
    more use.
    """

    def __init__(self) -> None:
        self._fields: deque[Field] = deque()
        self._bytes, self._limit = 0, TABLE_BYTES

    def read(self, block: bytes) -> list[Field]:
        try:
            return self._read(block)
        except IndexError:
            raise Misbehaved(PROTOCOL_ERROR, "a header block that ends early") from None

    def _read(self, block: bytes) -> list[Field]:
        fields: list[Field] = []
        at = size = 0
        while at < len(block):
            first = block[at]
            if first & 0x80:
                number, at = _number(block, at, 7)
                field = self._at(number)
            elif first & 0xE0 == 0x20:
                if fields:
                    raise Misbehaved(PROTOCOL_ERROR, "the header table is resized behind a field")
                limit, at = _number(block, at, 5)
                self._resize(limit)
                continue
            else:
                field, at = self._literal(block, at, 6 if first & 0x40 else 4)
                if first & 0x40:
                    self._add(field)
            size += _size(field)
            if size > LONGEST:
                raise Misbehaved(ENHANCE_YOUR_CALM, f"headers over {LONGEST} bytes")
            fields.append(field)
        return fields

    def _literal(self, block: bytes, at: int, bits: int) -> tuple[Field, int]:
        number, at = _number(block, at, bits)
        if number:
            name = self._at(number)[0]
        else:
            name, at = _text(block, at)
        value, at = _text(block, at)
        return (name, value), at

    def _at(self, number: int) -> Field:
        if not 0 < number <= len(_STATIC) + len(self._fields):
            raise Misbehaved(PROTOCOL_ERROR, f"header field {number} is not there")
        return _STATIC[number - 1] if number <= len(_STATIC) else self._fields[number - 1 - len(_STATIC)]

    def _add(self, field: Field) -> None:
        self._fields.appendleft(field)
        self._bytes += _size(field)
        self._shrink()

    def _resize(self, limit: int) -> None:
        if limit > TABLE_BYTES:
            raise Misbehaved(PROTOCOL_ERROR, f"a header table of {limit} bytes")
        self._limit = limit
        self._shrink()

    def _shrink(self) -> None:
        while self._bytes > self._limit:
            self._bytes -= _size(self._fields.pop())


def write_fields(fields: list[Field]) -> bytes:
    """A block of literals that are not to be kept: it goes between others without changing what they mean."""
    return b"".join(b"\0" + _sized(name) + _sized(value) for name, value in fields)


def _size(field: Field) -> int:
    return len(field[0]) + len(field[1]) + _EACH


def _sized(text: bytes) -> bytes:
    size = len(text)
    if size < 0x7F:
        return bytes((size,)) + text
    size -= 0x7F
    head = bytearray((0x7F,))
    while size >= 0x80:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head) + text


def _number(block: bytes, at: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    number, at = block[at] & most, at + 1
    if number < most:
        return number, at
    for shift in (0, 7, 14):  # two million is more than any number here may be
        byte, at = block[at], at + 1
        number += (byte & 0x7F) << shift
        if not byte & 0x80:
            return number, at
    raise Misbehaved(PROTOCOL_ERROR, "a number in a header block is too large")


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    is_packed = block[at] & 0x80
    size, at = _number(block, at, 7)
    text = block[at : at + size]
    if len(text) < size:
        raise IndexError
    return (_unpacked(text) if is_packed else text), at + size


def _unpacked(text: bytes) -> bytes:
    """Bits are filled up with ones behind the end, which no code of a byte begins with."""
    left = 8 * len(text)
    bits = (int.from_bytes(text, "big") << _MOST_BITS) | ((1 << _MOST_BITS) - 1)
    mask, unpacked = (1 << _MOST_BITS) - 1, bytearray()
    while left > 0:
        window = (bits >> left) & mask
        symbol, used = _SYMBOLS[bisect_right(_FIRSTS, window) - 1]
        if symbol == _END or used > left:
            if left > 7 or window >> (_MOST_BITS - left) != (1 << left) - 1:
                raise Misbehaved(PROTOCOL_ERROR, "a header value is malformed")
            break
        unpacked.append(symbol)
        left -= used
    return bytes(unpacked)
