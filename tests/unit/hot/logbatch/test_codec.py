# SPDX-License-Identifier: Apache-2.0
"""The codec against a reader written by hand from the layout, compression and alignment included."""

from __future__ import annotations

import struct

import google_crc32c
import pyarrow as pa
import pytest

from lakeward.errors import CorruptBatch
from lakeward.hot.logbatch.codec import LogCompression, check_crc, decode_records, encode_batch
from lakeward.hot.logbatch.header import read_header

ROWS = pa.record_batch({"a": pa.array(range(100), pa.int64()), "s": pa.array([None, *("text" * 5 for _ in range(99))])})


@pytest.mark.parametrize("compression", list(LogCompression))
@pytest.mark.parametrize("kinds", [None, bytes(i % 4 + 1 for i in range(100))], ids=["append", "changelog"])
def test_layout_is_what_a_hand_written_reader_expects(compression: LogCompression, kinds: bytes | None) -> None:
    encoded = encode_batch(ROWS, schema_id=3, change_types=kinds, writer_id=77, sequence=5, compression=compression)
    data = encoded.to_bytes(500, 1234)
    assert len(data) == encoded.size
    base, length, magic, timestamp, crc = struct.unpack("<qibqI", data[:25])
    assert (base, length, magic, timestamp) == (500, len(data) - 12, 0, 1234)
    assert crc == google_crc32c.value(data[25:])
    assert struct.unpack("<hbiqii", data[25:48]) == (3, 1 if kinds is None else 0, 99, 77, 5, 100)
    body = data[48:]
    if kinds is not None:
        assert body[:100] == kinds
        body = body[100:]
    assert body[:4] == b"\xff\xff\xff\xff"
    assert pa.ipc.read_record_batch(pa.py_buffer(body), ROWS.schema).equals(ROWS)
    if compression is not LogCompression.NONE:
        assert len(data) < encode_batch(ROWS, schema_id=3, change_types=kinds).size


def test_round_trip_projects_and_aligns() -> None:
    encoded = encode_batch(ROWS, schema_id=1, change_types=bytes(100))
    data = pa.py_buffer(encoded.to_bytes(0, 0))
    batch = decode_records(read_header(data), data, ROWS.schema, ["s", "a"])
    assert batch.equals(ROWS.select(["s", "a"]))
    assert batch.column("a").buffers()[1].address % 8 == 0


def test_batch_without_records_takes_one_offset() -> None:
    encoded = encode_batch(ROWS.slice(0, 0), schema_id=1, change_types=b"", writer_id=1, sequence=0)
    data = pa.py_buffer(encoded.to_bytes(9, 0))
    header = read_header(data)
    check_crc(header, data)
    assert (header.record_count, header.next_offset, encoded.offset_count) == (0, 10, 1)
    assert decode_records(header, data, ROWS.schema).num_rows == 0


def test_sliced_batch_stores_only_its_rows() -> None:
    encoded = encode_batch(ROWS.slice(10, 5), schema_id=1)
    data = pa.py_buffer(encoded.to_bytes(0, 0))
    assert decode_records(read_header(data), data, ROWS.schema).equals(ROWS.slice(10, 5))
    assert encoded.size < 800


def test_body_that_does_not_fit_is_corrupt() -> None:
    data = pa.py_buffer(encode_batch(ROWS, schema_id=1).to_bytes(0, 0))
    with pytest.raises(CorruptBatch):
        decode_records(read_header(data), data, pa.schema([("a", pa.int64())] * 3))


def test_change_types_must_match_the_rows() -> None:
    with pytest.raises(ValueError, match="2 change types for 100 records"):
        encode_batch(ROWS, schema_id=1, change_types=b"ab")
