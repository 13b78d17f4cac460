# SPDX-License-Identifier: Apache-2.0
"""Offset set of a data file: its encoding, the checksummed cache file next to it, and reading it from the file itself.

A missing, incomplete or stale cache costs a read of the `__offset` column and nothing else.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile

from lakeward.errors import IncompatibleVersion, InvalidRequest
from lakeward.lake.iceberg.meta.location import cache_path, is_ours
from lakeward.lake.kept import Kept
from lakeward.model import Offsets, OffsetSet, pack, unpack

_KIND, _VERSION = "iceberg-offsets", 1
_DENSE = 64
"""A bitmap is smaller up to this many offsets per row: 64 bits, the size of one plain offset."""


def encode_offsets(values: Offsets) -> bytes:
    """Encodes ascending offsets as a compressed bitmap, or as deltas if they are sparse, with a checksum."""
    if len(values) and int(values[-1]) - int(values[0]) < _DENSE * len(values):
        bits = np.zeros(int(values[-1]) - int(values[0]) + 1, np.bool_)
        bits[values - values[0]] = True
        packed = np.packbits(bits).tobytes()
        body = {"form": "bits", "first": int(values[0]), "size": len(packed), "count": len(values)}
        blob = pa.compress(packed, codec="zstd", asbytes=True)
    else:
        body, blob = {"form": "deltas", "count": len(values)}, OffsetSet.from_sorted(values).to_bytes()
    return pack(_KIND, _VERSION, {**body, "crc": zlib.crc32(blob)}, [blob])


def join_encoded(parts: Sequence[bytes]) -> bytes:
    """Encodes sets of ascending, separate ranges as one: a writer encodes each row group and keeps no plain offsets."""
    return parts[0] if len(parts) == 1 else pack(_KIND, _VERSION, {"form": "parts"}, parts)


def decode_offsets(data: bytes) -> OffsetSet:
    """Decodes a set. Raises `InvalidRequest` for incomplete bytes."""
    _, body, blobs = unpack(_KIND, _VERSION, data)
    if body["form"] == "parts":
        return OffsetSet.from_sorted(np.concatenate([decode_offsets(part).values for part in blobs]))
    (blob,) = blobs
    if zlib.crc32(blob) != body["crc"]:
        raise InvalidRequest(what="offset cache", reason="the checksum is wrong")
    if body["form"] == "deltas":
        return OffsetSet.from_bytes(blob)
    raw = pa.decompress(blob, decompressed_size=body["size"], codec="zstd", asbytes=True)
    at = np.flatnonzero(np.unpackbits(np.frombuffer(raw, np.uint8)))
    return OffsetSet.from_sorted((at + body["first"]).astype(np.int64))


def write_cache(io: FileIO, data_path: str, encoded: bytes) -> None:
    """Writes the cache next to the file, before it is committed. A failure does not matter: the cache can be written
    again."""
    try:
        with io.new_output(cache_path(data_path)).create(overwrite=True) as out:
            out.write(encoded)
    except OSError:
        return


def find_cache(io: FileIO, data_path: str, record_count: int) -> OffsetSet | None:
    """Reads the cached set; None if it is missing, incomplete, of another version or of another number of rows."""
    try:
        with io.new_input(cache_path(data_path)).open() as source:
            offsets = decode_offsets(source.read())
    except (OSError, InvalidRequest, IncompatibleVersion, pa.ArrowException, ValueError):
        return None
    return offsets if len(offsets) == record_count else None


def load_column(io: FileIO, data_path: str, field_id: int) -> Offsets:
    """Reads the `__offset` column of a file in file order, by field id."""
    with io.new_input(data_path).open() as source:
        file = pq.ParquetFile(source)
        name = offset_column(file.schema_arrow, field_id)
        return np.asarray(file.read(columns=[name], use_threads=False).column(0).to_numpy(), np.int64)


def offset_column(schema: pa.Schema, field_id: int) -> str:
    wanted = str(field_id).encode()
    for field in schema:
        if (field.metadata or {}).get(b"PARQUET:field_id") == wanted:
            return str(field.name)
    raise InvalidRequest(what="data file", reason=f"it has no field with id {field_id}")


_KEPT_OFFSETS = 8_000_000
"""64 MB of offset arrays, cached between the rounds of one process."""

_KEPT: Kept[Offsets] = Kept(_KEPT_OFFSETS, len)


class OffsetLoader:
    """Offsets of data files: from memory, from the cache file, or from the file's own column."""

    def __init__(self, io: FileIO, offset_id: int) -> None:
        self._io, self._offset_id = io, offset_id

    def load(self, file: DataFile) -> Offsets:
        return _KEPT.load(file.file_path, lambda: self._read(file))

    def _read(self, file: DataFile) -> Offsets:
        cached = find_cache(self._io, file.file_path, file.record_count) if is_ours(file.file_path) else None
        return cached.values if cached is not None else load_column(self._io, file.file_path, self._offset_id)


def positions_of(column: Offsets, wanted: Offsets) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], Offsets]:
    """Returns for each requested offset whether the column has it, and every position that has one of them. `wanted` is
    ascending."""
    if not len(column):
        return np.zeros(len(wanted), np.bool_), np.empty(0, np.int64)
    if not np.all(column[1:] > column[:-1]):  # another engine's file may have a row twice
        return np.isin(wanted, column), np.flatnonzero(np.isin(column, wanted))
    at = np.minimum(np.searchsorted(column, wanted), len(column) - 1)
    mask = column[at] == wanted
    return mask, at[mask].astype(np.int64)
