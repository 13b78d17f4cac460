# SPDX-License-Identifier: Apache-2.0
"""The header of a log batch: where its fields lie in each magic, packing and reading it. Knows nothing of Arrow.

    magic 0       baseOffset i64 | length i32 | magic i8 | commitTimestamp i64 | crc32c u32
                  | schemaId i16 | attributes i8 | lastOffsetDelta i32 | writerId i64 | batchSequence i32
                  | recordCount i32
    magic 1       one field more: statisticsLength i32 at the end (Fluss 1.0), or leaderEpoch i32 before the crc (0.9)
    magic 2       both

Little-endian. `length` counts what follows it; the crc covers everything from schemaId on, statistics and records
included.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lakeward.errors import CorruptBatch

Readable = Any
"""Anything with the buffer protocol: bytes, memoryview, `pa.Buffer`."""

NO_WRITER = -1
NO_SEQUENCE = -1
HEADER_SIZE = 48
"""Header size for magic 0, the only one that we write."""

PREFIX_SIZE = 12
"""baseOffset and length: enough to step to the next batch."""

MAX_BATCH_BYTES = 2**31 - 1
MAX_SCHEMA_ID = 2**15 - 1
APPEND_ONLY = 0x01
_LENGTH_END = 12
_OUTER = struct.Struct("<qibqI")
_INNER = struct.Struct("<hbiqii")
_INT = struct.Struct("<i")
_PREFIX = struct.Struct("<qi")
assert _OUTER.size + _INNER.size == HEADER_SIZE


class MagicOne(StrEnum):
    """Meaning of magic 1, which differs between Fluss versions."""

    STATISTICS = "statistics"
    LEADER_EPOCH = "leader-epoch"


@dataclass(frozen=True, slots=True)
class LogBatchHeader:
    """One batch as its header tells it. `crc_at` and `records_at` are byte offsets from the batch's first byte."""

    base_offset: int
    size: int
    magic: int
    timestamp_ms: int
    crc: int
    schema_id: int
    append_only: bool
    last_offset_delta: int
    writer_id: int
    sequence: int
    record_count: int
    crc_at: int
    records_at: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1


def pack_inner(*, schema_id: int, append_only: bool, record_count: int, writer_id: int, sequence: int) -> bytes:
    """The part that the crc covers, so that it can be computed before the offset is known.

    A batch without records still takes one offset (delta 0), as in Fluss: every batch has an offset of its own."""
    delta = max(record_count - 1, 0)
    return _INNER.pack(schema_id, APPEND_ONLY if append_only else 0, delta, writer_id, sequence, record_count)


def pack_outer(*, base_offset: int, timestamp_ms: int, crc: int, payload_size: int) -> bytes:
    """The first part; `payload_size` is the size of everything that the crc covers."""
    length = _OUTER.size - _LENGTH_END + payload_size
    return _OUTER.pack(base_offset, length, 0, timestamp_ms, crc)


def peek(data: Readable, position: int) -> tuple[int, int]:
    """(base offset, size of the whole batch) from the first 12 bytes, unchecked."""
    base, length = _PREFIX.unpack_from(data, position)
    return base, length + _LENGTH_END


def read_header(
    data: Readable, position: int = 0, *, where: str = "log batch", magic_one: MagicOne = MagicOne.STATISTICS
) -> LogBatchHeader:
    """The header at `position`. Needs up to 56 bytes there. Raises `CorruptBatch` for what no
    writer can have written.
    """
    available = memoryview(data).nbytes - position
    if available < HEADER_SIZE:
        raise CorruptBatch(where=where, position=position, reason=f"{available} bytes are no header")
    base, length, magic, timestamp, crc = _OUTER.unpack_from(data, position)
    if magic == 0:
        return _checked(
            data, position, where, base, length, magic, timestamp, crc, inner_at=_OUTER.size, statistics=False
        )
    if magic not in (1, 2):
        raise CorruptBatch(where=where, position=position, reason=f"magic {magic} is not known")
    has_epoch = magic == 2 or magic_one is MagicOne.LEADER_EPOCH
    has_statistics = magic == 2 or magic_one is MagicOne.STATISTICS
    if available < HEADER_SIZE + 4 * (has_epoch + has_statistics):
        raise CorruptBatch(where=where, position=position, reason=f"{available} bytes are no header of magic {magic}")
    shift = 4 if has_epoch else 0
    if has_epoch:
        (crc,) = struct.unpack_from("<I", data, position + _OUTER.size)
    return _checked(
        data,
        position,
        where,
        base,
        length,
        magic,
        timestamp,
        crc,
        inner_at=_OUTER.size + shift,
        statistics=has_statistics,
    )


def _checked(
    data: Readable,
    position: int,
    where: str,
    base: int,
    length: int,
    magic: int,
    timestamp: int,
    crc: int,
    *,
    inner_at: int,
    statistics: bool,
) -> LogBatchHeader:
    schema_id, attributes, delta, writer, sequence, count = _INNER.unpack_from(data, position + inner_at)
    records_at = inner_at + _INNER.size
    if statistics:
        (statistics_size,) = _INT.unpack_from(data, position + records_at)
        records_at += 4 + statistics_size
    size = length + _LENGTH_END
    if base < 0 or delta < 0 or count < 0 or size < records_at or records_at < HEADER_SIZE:
        raise CorruptBatch(
            where=where,
            position=position,
            reason=f"impossible header: offset {base}, length {length}, {count} records, delta {delta}",
        )
    return LogBatchHeader(
        base,
        size,
        magic,
        timestamp,
        crc,
        schema_id,
        bool(attributes & APPEND_ONLY),
        delta,
        writer,
        sequence,
        count,
        inner_at,
        records_at,
    )
