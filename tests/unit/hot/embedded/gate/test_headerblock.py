# SPDX-License-Identifier: Apache-2.0
"""Header blocks against the examples of RFC 7541, and blocks made to do harm."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.hot.embedded.gate.frames import Misbehaved
from lakeward.hot.embedded.gate.headerblock import HeaderReader, write_fields

FIRST = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"www.example.com")]
SECOND = [*FIRST, (b"cache-control", b"no-cache")]
THIRD = [
    (b":method", b"GET"),
    (b":scheme", b"https"),
    (b":path", b"/index.html"),
    (b":authority", b"www.example.com"),
    (b"custom-key", b"custom-value"),
]
PLAIN = (
    "828684410f7777772e6578616d706c652e636f6d",
    "828684be58086e6f2d6361636865",
    "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
)
PACKED = (
    "828684418cf1e3c2e5f23a6ba0ab90f4ff",
    "828684be5886a8eb10649cbf",
    "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
)
"""C.3 and C.4: the same three requests on one connection, without and with Huffman codes."""


@pytest.mark.parametrize("blocks", [PLAIN, PACKED])
def test_blocks_of_one_connection_refer_to_earlier_ones(blocks: tuple[str, ...]) -> None:
    reader = HeaderReader()
    assert [reader.read(bytes.fromhex(block)) for block in blocks] == [FIRST, SECOND, THIRD]


def test_the_table_forgets_what_does_not_fit() -> None:
    reader = HeaderReader()
    for n in range(50):
        reader.read(b"\x40" + write_fields([(b"n%03d" % n, bytes(196))])[1:])  # 4 + 196 + 32 bytes each
    assert reader.read(b"\xbe") == [(b"n049", bytes(196))]
    kept = 4096 // 232
    assert reader.read(bytes([0x80 | 61 + kept])) == [(b"n%03d" % (50 - kept), bytes(196))]
    with pytest.raises(Misbehaved, match="not there"):
        reader.read(bytes([0x80 | 62 + kept]))


@given(st.lists(st.tuples(st.binary(max_size=300), st.binary(max_size=300)), max_size=10))
def test_what_is_written_is_read(fields: list[tuple[bytes, bytes]]) -> None:
    reader = HeaderReader()
    assert reader.read(write_fields(fields)) == fields
    with pytest.raises(Misbehaved, match="not there"):
        reader.read(b"\xbe")  # nothing was kept


@given(st.binary(max_size=200))
def test_any_bytes_are_fields_or_misbehaviour(block: bytes) -> None:
    with contextlib.suppress(Misbehaved):
        HeaderReader().read(block)


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (b"\x40\x01a\x7f\x81\x1e" + bytes(3968) + b"\xbe" * 5, "over"),  # a long value, then a byte for each copy
        (b"\x3f\xe2\x1f", "table of 4097"),
        (b"\x82\x20", "behind a field"),
        (b"\xff\xff\xff\xff\xff\xff", "too large"),
        (b"\x80", "not there"),
        (b"\x00\x05ab", "ends early"),
        (b"\x00\x01a\x84\xff\xff\xff\xff", "malformed"),
        (b"\x00\x01a\x81\xff", "malformed"),
    ],
)
def test_blocks_that_do_harm(block: bytes, why: str) -> None:
    with pytest.raises(Misbehaved, match=why):
        HeaderReader().read(block)
