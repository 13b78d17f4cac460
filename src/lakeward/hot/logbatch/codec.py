# SPDX-License-Identifier: Apache-2.0
"""Arrow batches to log batches and back. Works on whole batches; nothing here touches a single row in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

import google_crc32c
import pyarrow as pa

from lakeward.errors import CorruptBatch
from lakeward.hot.logbatch.header import HEADER_SIZE, NO_SEQUENCE, NO_WRITER, LogBatchHeader, pack_inner, pack_outer

_ALIGNMENT = 8
"""Arrow kernels may assume aligned values; IPC aligns to 8 within a message, so the message itself has to be aligned.
"""


class LogCompression(StrEnum):
    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A batch that lacks only its offset and time. The crc does not cover those, so encoding needs no lock."""

    inner: bytes
    change_types: bytes
    message: pa.Buffer
    crc: int
    record_count: int

    @property
    def size(self) -> int:
        return HEADER_SIZE + len(self.change_types) + int(self.message.size)

    @property
    def offset_count(self) -> int:
        """How many offsets it takes: one at least."""
        return max(self.record_count, 1)

    def parts(self, base_offset: int, timestamp_ms: int) -> list[Any]:
        """The batch as buffers, for one vectored write."""
        payload = len(self.inner) + len(self.change_types) + self.message.size
        outer = pack_outer(base_offset=base_offset, timestamp_ms=timestamp_ms, crc=self.crc, payload_size=payload)
        return [outer + self.inner + self.change_types, self.message]

    def to_bytes(self, base_offset: int, timestamp_ms: int) -> bytes:
        return b"".join(bytes(memoryview(p)) for p in self.parts(base_offset, timestamp_ms))


def encode_batch(
    batch: pa.RecordBatch,
    *,
    schema_id: int,
    change_types: bytes | None = None,
    writer_id: int = NO_WRITER,
    sequence: int = NO_SEQUENCE,
    compression: LogCompression = LogCompression.NONE,
    level: int | None = None,
) -> EncodedBatch:
    """`change_types` has one byte per record (`ChangeType`); None makes an append-only batch."""
    if change_types is not None and len(change_types) != batch.num_rows:
        raise ValueError(f"{len(change_types)} change types for {batch.num_rows} records")
    message = (
        batch.serialize() if compression is LogCompression.NONE else _serialize_compressed(batch, compression, level)
    )
    inner = pack_inner(
        schema_id=schema_id,
        append_only=change_types is None,
        record_count=batch.num_rows,
        writer_id=writer_id,
        sequence=sequence,
    )
    kinds = change_types or b""
    crc = google_crc32c.extend(google_crc32c.value(inner + kinds), message)
    return EncodedBatch(inner, kinds, message, crc, batch.num_rows)


def check_crc(header: LogBatchHeader, data: pa.Buffer, *, where: str = "log batch", position: int = 0) -> None:
    """`data` is the whole batch. Raises `CorruptBatch`; `where` and `position` only name the place."""
    crc = google_crc32c.value(data.slice(header.crc_at, header.size - header.crc_at))
    if crc != header.crc:
        raise CorruptBatch(
            where=where, position=position, reason=f"checksum is {crc:08x}, the header says {header.crc:08x}"
        )


def decode_change_types(header: LogBatchHeader, data: pa.Buffer) -> pa.Buffer | None:
    """One byte per record, or None for an append-only batch."""
    return None if header.append_only else data.slice(header.records_at, header.record_count)


def decode_records(
    header: LogBatchHeader, data: pa.Buffer, schema: pa.Schema, columns: Sequence[str] | None = None
) -> pa.RecordBatch:
    """The records of a whole batch, `columns` of them. Zero-copy where the body is not compressed and lies aligned.

    Raises `CorruptBatch` when the body does not fit the schema."""
    read_schema = schema if columns is None else pa.schema([schema.field(c) for c in columns])
    if header.record_count == 0:
        return _no_rows(read_schema)
    start = header.records_at + (0 if header.append_only else header.record_count)
    message = _aligned(data.slice(start, header.size - start))
    try:
        batch = pa.ipc.read_record_batch(message, schema)
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptBatch(where=f"batch at offset {header.base_offset}", position=0, reason=str(error)) from error
    if batch.num_rows != header.record_count:
        reason = f"{batch.num_rows} records in the body, {header.record_count} in the header"
        raise CorruptBatch(where=f"batch at offset {header.base_offset}", position=0, reason=reason)
    return batch if columns is None else batch.select(list(columns))


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


def _aligned(message: pa.Buffer) -> pa.Buffer:
    if message.address % _ALIGNMENT == 0:
        return message
    sink = pa.BufferOutputStream()
    sink.write(message)
    return sink.getvalue()


def _serialize_compressed(batch: pa.RecordBatch, compression: LogCompression, level: int | None) -> pa.Buffer:
    """`RecordBatch.serialize` takes no options: write a stream and leave out its schema message and end marker."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_write_options(compression, level)) as writer:
        writer.write_batch(batch)
        stop = sink.tell()
    head = batch.schema.serialize().size
    return sink.getvalue().slice(head, stop - head)


@cache
def _write_options(compression: LogCompression, level: int | None) -> pa.ipc.IpcWriteOptions:
    return pa.ipc.IpcWriteOptions(compression=pa.Codec(str(compression), compression_level=level), use_threads=False)
