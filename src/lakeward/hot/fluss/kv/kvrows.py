# SPDX-License-Identifier: Apache-2.0
"""Values of a Fluss KV store, many at once, as Arrow: numpy walks all rows in step, column by column.

A value is the schema id (i16, little-endian) and a compacted row; layout 2 (Fluss 1.0) puts a tag of its own, eight
bytes, before them. The row: one null bit per column (lowest bit first, 1 = null), then the columns that are not null,
unpadded. Integers, dates, times and timestamps are varints of their bit pattern; a timestamp of more than milliseconds
adds a varint of nanoseconds; texts and bytes have a varint length; small decimals are varints, large ones length and
big-endian bytes; BOOLEAN, TINYINT, SMALLINT, FLOAT and DOUBLE are plain little-endian.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeward.errors import CorruptBatch
from lakeward.hot.fluss.kv.kvvalues import NESTED, read_compacted, read_indexed, read_nested
from lakeward.hot.fluss.kv.rowbatch import log_schema
from lakeward.model import Column
from lakeward.model import types as model

_PAD = 32
"""Bytes before and after the rows, so that an eight-byte load never leaves the buffer."""

_ID_BYTES = 2
_COMPACT_DECIMAL = 18
_MILLIS = 3
_U = np.uint64
_TOPS = _U(0x8080808080808080)
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
_FIXED: dict[type[model.DataType], tuple[int, str]] = {
    model.Int8Type: (1, "i1"),
    model.Int16Type: (2, "<i2"),
    model.Float32Type: (4, "<f4"),
    model.Float64Type: (8, "<f8"),
}
_VARINT_32 = (model.Int32Type, model.DateType)
_SIZED = (model.StringType, model.CharType, model.BytesType, model.BinaryType)
COMPACTED, INDEXED = "compacted", "indexed"
"""Values of `table.kv.format`."""

TAG_BYTES = {"1": 0, "2": 8}
"""Layout of values, as `table.kv.value-layout-version` calls it -> bytes before the schema id."""


def without_tags(values: list[bytes], layout: str) -> list[bytes]:
    """Values as those of layout 1 are."""
    tag = TAG_BYTES[layout]
    return [value[tag:] for value in values] if tag else values


def schema_ids(values: Sequence[bytes]) -> npt.NDArray[np.int16]:
    return np.frombuffer(b"".join(v[:_ID_BYTES] for v in values), "<i2")


def decode_rows(values: Sequence[bytes], columns: Sequence[Column], form: str = COMPACTED) -> pa.RecordBatch:
    """Rows of one schema. Raises `CorruptBatch` unless every row ends exactly where its last column does."""
    if form == INDEXED:
        return _decode_indexed(values, columns)
    rows = _Rows(values, len(columns))
    schema = log_schema(columns)
    arrays = [rows.column(number, column.type, schema.field(number).type) for number, column in enumerate(columns)]
    rows.check_ends()
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _decode_indexed(values: Sequence[bytes], columns: Sequence[Column]) -> pa.RecordBatch:
    """Row by row: tables in this format are rare."""
    kinds, schema = [c.type for c in columns], log_schema(columns)
    rows = [read_indexed(value, _ID_BYTES, kinds) for value in values]
    arrays = [pa.array([row[n] for row in rows], schema.field(n).type) for n in range(len(columns))]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Rows:
    """All rows in one buffer, with a reading position for each."""

    def __init__(self, values: Sequence[bytes], width: int) -> None:
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        self._data = b"".join((b"\0" * _PAD, *values, b"\0" * _PAD))
        self._bytes = np.frombuffer(self._data, np.uint8)
        self._words: Words = np.lib.stride_tricks.as_strided(
            np.frombuffer(self._data, "<u8", 1), (len(self._data) - 7,), (1,)
        )
        self._start = np.cumsum(sizes) - sizes + _PAD
        self._end = self._start + sizes
        self._at = self._start + _ID_BYTES + (width + 7) // 8

    def column(self, number: int, kind: model.DataType, arrow: pa.DataType) -> pa.Array:
        nulls = self._bytes[self._start + _ID_BYTES + number // 8] >> (number % 8) & 1
        valid = nulls == 0
        if type(kind) in _FIXED:
            return self._fixed(*_FIXED[type(kind)], valid, arrow)
        if isinstance(kind, model.BooleanType):
            bits = self._bytes[self._at] != 0
            self._at = self._at + valid
            return pa.Array.from_buffers(arrow, len(valid), [_bits(valid), _bits(bits)])
        if isinstance(kind, _SIZED):
            return self._sized(valid, arrow)
        if isinstance(kind, model.DecimalType):
            return self._decimal(kind, valid, arrow)
        if isinstance(kind, NESTED):
            return self._nested(kind, valid, arrow)
        if isinstance(kind, model.TimestampType | model.TimestampLtzType):
            return self._timestamp(kind.precision, valid, arrow)
        return self._integer(kind, valid, arrow)

    def check_ends(self) -> None:
        if not (self._at == self._end).all():
            row = int(np.flatnonzero(self._at != self._end)[0])
            raise CorruptBatch(where="KV snapshot", position=row, reason="a row does not end where its columns do")

    # ---- kinds -----------------------------------------------------------------------------------------------------
    def _fixed(self, width: int, form: str, valid: Mask, arrow: pa.DataType) -> pa.Array:
        low = self._words[self._at]
        values = low.view(form) if width == 8 else low.astype(f"<u{width}").view(form)
        self._at = self._at + valid * width
        return _array(arrow, values, valid)

    def _integer(self, kind: model.DataType, valid: Mask, arrow: pa.DataType) -> pa.Array:
        if isinstance(kind, model.Int64Type):
            return _array(arrow, self._varint(valid), valid)
        values = self._varint(valid).astype(np.int32)
        if isinstance(kind, _VARINT_32):
            return _array(arrow, values, valid)
        return _time(values, valid, arrow)

    def _timestamp(self, precision: int, valid: Mask, arrow: pa.DataType) -> pa.Array:
        millis = self._varint(valid)
        if precision <= _MILLIS:
            values = millis // 1000 if arrow.unit == "s" else millis
        else:
            nanos = self._varint(valid)
            values = millis * 1000 + nanos // 1000 if arrow.unit == "us" else millis * 1_000_000 + nanos
        return _array(arrow, values, valid)

    def _decimal(self, kind: model.DecimalType, valid: Mask, arrow: pa.DataType) -> pa.Array:
        if kind.precision <= _COMPACT_DECIMAL:
            low = self._varint(valid)
            return _decimals(low, low >> 63, valid, arrow)
        size = np.where(valid, self._varint(valid), 0)
        self._at = self._at + size
        low = self._words[self._at - 8].byteswap().view(np.int64)
        high = self._words[self._at - 16].byteswap().view(np.int64)
        cut_low, cut_high = np.clip(64 - 8 * size, 0, 63), np.clip(128 - 8 * size, 0, 63)
        short = (low << cut_low) >> cut_low
        high = np.where(size > 8, (high << cut_high) >> cut_high, short >> 63)
        return _decimals(np.where(size >= 8, low, short), high, valid, arrow)

    def _sized(self, valid: Mask, arrow: pa.DataType) -> pa.Array:
        """Copies each value once, by the positions of all bytes wanted."""
        size = np.where(valid, self._varint(valid), 0)
        starts = self._at
        self._at = self._at + size
        ends = np.cumsum(size)
        if len(ends) and ends[-1] > np.iinfo(np.int32).max:
            raise CorruptBatch(
                where="KV snapshot", position=0, reason="a chunk of rows holds more than 2 GiB of one column"
            )
        take = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - size), size)
        body = pa.py_buffer(self._bytes[take])
        if pa.types.is_fixed_size_binary(arrow):
            offsets = np.concatenate(([0], ends)).astype(np.int32)
            loose = pa.Array.from_buffers(pa.binary(), len(valid), [_bits(valid), pa.py_buffer(offsets), body])
            return loose.cast(arrow)
        offsets = np.concatenate(([0], ends)).astype(np.int32)
        return pa.Array.from_buffers(arrow, len(valid), [_bits(valid), pa.py_buffer(offsets), body])

    def _nested(self, kind: model.DataType, valid: Mask, arrow: pa.DataType) -> pa.Array:
        """One by one: what such a value looks like depends on itself."""
        size = np.where(valid, self._varint(valid), 0)
        spans = zip(self._at.tolist(), size.tolist(), valid.tolist(), strict=True)
        self._at = self._at + size
        return pa.array(
            [read_nested(self._data, at, n, kind, read_compacted) if there else None for at, n, there in spans], arrow
        )

    def _varint(self, valid: Mask) -> Ints:
        """The number at each row's position, which moves on where the column is not null."""
        word = self._words[self._at]
        stops = ~word & _TOPS
        is_long = stops == 0
        lowest = stops & (~stops + _U(1))
        used = np.where(is_long, 8, (np.bitwise_count(lowest - _U(1)).astype(np.int64) >> 3) + 1)
        used_bits = word & np.where(is_long, ~_U(0), (lowest << _U(1)) - _U(1)) & ~_TOPS
        used_bits = (used_bits & _U(0x007F007F007F007F)) | ((used_bits & _U(0x7F007F007F007F00)) >> _U(1))
        used_bits = (used_bits & _U(0x00003FFF00003FFF)) | ((used_bits & _U(0x3FFF00003FFF0000)) >> _U(2))
        used_bits = (used_bits & _U(0x000000000FFFFFFF)) | ((used_bits & _U(0x0FFFFFFF00000000)) >> _U(4))
        if is_long.any():
            self._extend(used_bits, used, np.flatnonzero(is_long))
        self._at = self._at + np.where(valid, used, 0)
        values: Ints = used_bits.view(np.int64)
        return values

    def _extend(self, kept: Words, used: Ints, rows: Ints) -> None:
        """Numbers of nine and ten bytes: 56 bits are there, the rest follows."""
        at = self._at[rows] + 8
        ninth, tenth = self._bytes[at].astype(np.uint64), self._bytes[at + 1].astype(np.uint64)
        has_tenth = ninth >= 128
        value = kept[rows] | ((ninth & _U(127)) << _U(56))
        kept[rows] = np.where(has_tenth, value | (tenth << _U(63)), value)
        used[rows] = 9 + has_tenth


def _time(millis: npt.NDArray[np.int32], valid: Mask, arrow: pa.DataType) -> pa.Array:
    """Fluss keeps times of day in milliseconds, whatever the precision."""
    if arrow.unit == "ms":
        return _array(arrow, millis, valid)
    if arrow.unit == "s":
        return _array(arrow, (millis // 1000).astype(np.int32), valid)
    return _array(arrow, millis.astype(np.int64) * (1000 if arrow.unit == "us" else 1_000_000), valid)


def _array(kind: pa.DataType, values: npt.NDArray[np.generic], valid: Mask) -> pa.Array:
    return pa.Array.from_buffers(kind, len(valid), [_bits(valid), pa.py_buffer(np.ascontiguousarray(values))])


def _decimals(low: Ints, high: Ints, valid: Mask, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(valid), [_bits(valid), pa.py_buffer(np.stack((low, high), axis=1).copy())])


def _bits(mask: Mask) -> pa.Buffer | None:
    return pa.py_buffer(np.packbits(mask, bitorder="little"))
