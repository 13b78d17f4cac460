# SPDX-License-Identifier: Apache-2.0
"""Headers made by hand from the layout, in every magic."""

from __future__ import annotations

import struct

import google_crc32c
import pyarrow as pa
import pytest

from lakeward.errors import CorruptBatch
from lakeward.hot.logbatch.codec import check_crc, decode_change_types, decode_records
from lakeward.hot.logbatch.header import MagicOne, peek, read_header

ROWS = pa.record_batch({"a": pa.array([1, 2, 3], pa.int64()), "s": pa.array(["x", None, "zz"])})
KINDS = bytes([1, 2, 3])


def make_batch(magic: int, *, epoch: bool = False, statistics: bytes | None = None, append_only: bool = True) -> bytes:
    """An independent writer: field by field, as the fact sheet lists them."""
    body = b"" if append_only else KINDS
    body += bytes(ROWS.serialize().to_pybytes())
    covered = struct.pack("<h", 7) + struct.pack("<b", 1 if append_only else 0) + struct.pack("<i", 2)
    covered += struct.pack("<q", 2**62 + 5) + struct.pack("<i", 41) + struct.pack("<i", 3)
    if statistics is not None:
        covered += struct.pack("<i", len(statistics)) + statistics
    covered += body
    rest = struct.pack("<b", magic) + struct.pack("<q", 1_700_000_000_123)
    if epoch:
        rest += struct.pack("<i", 9)
    rest += struct.pack("<I", google_crc32c.value(covered)) + covered
    return struct.pack("<q", 1000) + struct.pack("<i", len(rest)) + rest


VARIANTS = {
    "v0": (make_batch(0), MagicOne.STATISTICS, 48),
    "v1 of 1.0": (make_batch(1, statistics=b"min-max"), MagicOne.STATISTICS, 52),
    "v1 of 1.0, no statistics": (make_batch(1, statistics=b""), MagicOne.STATISTICS, 52),
    "v1 of 0.9": (make_batch(1, epoch=True), MagicOne.LEADER_EPOCH, 52),
    "v2": (make_batch(2, epoch=True, statistics=b"12345"), MagicOne.STATISTICS, 56),
    "v0 changelog": (make_batch(0, append_only=False), MagicOne.STATISTICS, 48),
    "v2 changelog": (make_batch(2, epoch=True, statistics=b"1", append_only=False), MagicOne.STATISTICS, 56),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_reads_batches_made_by_hand(name: str) -> None:
    data, magic_one, smallest = VARIANTS[name]
    padded = b"junk" + data + b"more"
    header = read_header(padded, 4, magic_one=magic_one)
    assert (header.base_offset, header.size, header.timestamp_ms) == (1000, len(data), 1_700_000_000_123)
    assert (header.schema_id, header.writer_id, header.sequence, header.record_count) == (7, 2**62 + 5, 41, 3)
    assert header.next_offset == 1003
    assert header.records_at >= smallest
    assert peek(padded, 4) == (1000, len(data))
    buffer = pa.py_buffer(padded).slice(4, header.size)
    check_crc(header, buffer)
    assert decode_records(header, buffer, ROWS.schema).equals(ROWS)
    kinds = decode_change_types(header, buffer)
    assert (kinds and kinds.to_pybytes()) == (KINDS if "changelog" in name else None)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_flipped_bit_behind_the_crc_is_found(name: str) -> None:
    data, magic_one, _ = VARIANTS[name]
    header = read_header(data, magic_one=magic_one)
    for position in range(header.crc_at, len(data), 13):
        broken = bytearray(data)
        broken[position] ^= 0x10
        with pytest.raises(CorruptBatch):
            check_crc(header, pa.py_buffer(bytes(broken)))


@pytest.mark.parametrize(
    ("position", "value"),
    [(12, 9), (8, 0), (8, 3), (7, 0x80), (31, 0x80), (44, 0xFF)],
    ids=["magic", "length 0", "length 3", "offset < 0", "delta < 0", "count"],
)
def test_refuses_impossible_headers(position: int, value: int) -> None:
    broken = bytearray(make_batch(0))
    if position == 8:
        broken[8:12] = struct.pack("<i", value)
    elif position == 44:
        broken[44:48] = struct.pack("<i", -1)
    elif position == 31:
        broken[31:35] = struct.pack("<i", -5)
    else:
        broken[position] |= value
    with pytest.raises(CorruptBatch):
        read_header(bytes(broken))


@pytest.mark.parametrize("size", [0, 11, 47])
def test_refuses_short_headers(size: int) -> None:
    with pytest.raises(CorruptBatch):
        read_header(make_batch(0)[:size])


def test_refuses_short_header_of_magic_two() -> None:
    with pytest.raises(CorruptBatch):
        read_header(make_batch(2, epoch=True, statistics=b"")[:55])
