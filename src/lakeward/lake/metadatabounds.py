# SPDX-License-Identifier: Apache-2.0
"""Size limits of a lake's metadata files, compressed and decompressed. Anyone who can write below a table's folder can
write them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lakeward.errors import LakeMetadataTooLarge
from lakeward.model import Offsets

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyroaring import BitMap, BitMap64

LIMIT_OPTION: Final = "max-metadata-bytes"
"""Option of a lake: the largest size of one stored metadata file, in bytes."""

LIMIT: Final = 32 << 20
"""About 80,000 snapshots of an Iceberg table, or 60,000 files in one commit of a Delta table."""

_UNPACKED = 4
"""The decompressed size of an Avro or Parquet file may be this many times the limit, as its values are compact."""

_POSITIONS = 1 << 27
"""The most positions of a deletion vector: a few bytes of it can name billions of rows, more than any data file has."""

_RAW_DEFLATE = -15
_MAGIC, _SYNC = b"Obj\x01", 16


@dataclass(frozen=True)
class MetadataBounds:
    """Size limits of one lake's metadata."""

    limit: int = LIMIT

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> MetadataBounds:
        text = str(options.get(LIMIT_OPTION, ""))
        return cls(int(text)) if text.isdigit() else cls()

    @property
    def unpacked_limit(self) -> int:
        return self.limit * _UNPACKED

    def check_packed(self, file: str, size: int) -> None:
        """Raises `LakeMetadataTooLarge`."""
        self._check(file, size, self.limit)

    def check_unpacked(self, file: str, size: int) -> None:
        """Raises `LakeMetadataTooLarge`."""
        self._check(file, size, self.unpacked_limit)

    def check_parquet(self, file: str, metadata: pq.FileMetaData) -> None:
        """Checks the sizes in the footer. Raises `LakeMetadataTooLarge`."""
        self.check_unpacked(file, sum(metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups)))

    def check_avro(self, file: str, data: bytes) -> None:
        """Checks a container file before a library decodes it: the decompressed size of its blocks, and that they have
        no more values than bytes. Raises `LakeMetadataTooLarge`, `ValueError`."""
        self.check_packed(file, len(data))
        source, used = BytesIO(data), 0
        try:
            magic, meta, sync = source.read(len(_MAGIC)), _read_map(source), source.read(_SYNC)
            sized = _SIZES.get(meta.get("avro.codec", b"null").decode())
            if magic != _MAGIC or sized is None or _has_empty_items(json.loads(meta["avro.schema"])):
                raise ValueError("it is not an Avro file of a known codec whose items take at least a byte")
            while source.tell() < len(data):
                count, block = _read_long(source), _read_bytes(source)
                size = sized(block, self.unpacked_limit - used)
                used += size
                self.check_unpacked(file, used)
                if source.read(_SYNC) != sync or not 0 <= count <= size:
                    raise ValueError("a block is cut off, or has more values than bytes")
        except LakeMetadataTooLarge:
            raise
        except Exception as error:
            raise ValueError(f"{file} is a broken Avro file: {error!r}"[:500]) from error

    def _check(self, file: str, size: int, limit: int) -> None:
        if size > limit:
            raise LakeMetadataTooLarge(file=file[:500], limit=limit, option=LIMIT_OPTION)


def check_positions(count: int) -> None:
    """Raises `ValueError`."""
    if count > _POSITIONS:
        raise ValueError(f"a deletion vector names {count} rows")


def positions_in(bitmap: BitMap | BitMap64) -> Offsets:
    """Returns the positions, ascending. Raises `ValueError`."""
    check_positions(len(bitmap))
    return np.asarray(bitmap.to_array()).astype(np.int64)


def _read_long(source: BytesIO) -> int:
    value = shift = 0
    while shift < 64:
        (byte,) = source.read(1) or (None,)
        if byte is None:
            break
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1)
        shift += 7
    raise ValueError("a number is cut off")


def _read_bytes(source: BytesIO) -> bytes:
    size = _read_long(source)
    data = source.read(size) if size >= 0 else b""
    if len(data) != size:
        raise ValueError("a value is cut off")
    return data


def _read_map(source: BytesIO) -> dict[str, bytes]:
    values: dict[str, bytes] = {}
    while (count := _read_long(source)) != 0:
        if count < 0:
            _read_long(source)
        for _ in range(abs(count)):
            key = _read_bytes(source).decode()
            values[key] = _read_bytes(source)
    return values


def _deflate_size(block: bytes, left: int) -> int:
    return len(zlib.decompressobj(_RAW_DEFLATE).decompress(block, left + 1))


def _snappy_size(block: bytes, left: int) -> int:
    """Returns the size in a block's preamble, a varint: the library refuses a block of another size."""
    size = 0
    for shift, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * shift)
        if not byte & 0x80:
            return size
    raise ValueError("a block of snappy does not record its size")


def _stream_size(codec: str) -> Callable[[bytes, int], int]:
    def size(block: bytes, left: int) -> int:
        with pa.CompressedInputStream(pa.BufferReader(block), codec) as stream:
            return len(stream.read(left + 1))

    return size


_SIZES: Mapping[str, Callable[[bytes, int], int]] = {
    "null": lambda block, _: len(block),
    "deflate": _deflate_size,
    "snappy": _snappy_size,
    "zstandard": _stream_size("zstd"),
    "bzip2": _stream_size("bz2"),
}
"""Codec -> decompressed size of a block; any larger number if that is above the rest of the limit."""


def _has_empty_items(schema: Any) -> bool:
    """Whether a schema may have lists whose items take no bytes. A list of a few bytes could then have any number of
    items."""
    empty, todo = [schema], [schema]
    named: dict[str, Any] = {}
    while todo:
        part = todo.pop()
        if isinstance(part, list):
            todo += part
        elif isinstance(part, dict):
            named.setdefault(str(part.get("name", "")), part)
            todo += [part.get("items"), part.get("values"), part.get("type"), *_field_types(part)]
            if part.get("type") == "array":
                empty.append(part.get("items"))
    return any(_is_empty(part, named, 0) for part in empty)


_DEEPEST = 64


def _is_empty(schema: Any, named: Mapping[str, Any], depth: int) -> bool:
    if depth > _DEEPEST:
        return True
    if isinstance(schema, str):
        other = named.get(schema) or named.get(schema.rpartition(".")[2])
        return schema == "null" or (other is not None and _is_empty(other, named, depth + 1))
    if not isinstance(schema, dict):
        return schema is None
    kind = schema.get("type")
    if kind == "fixed":
        return not schema.get("size")
    if kind in ("record", "error"):
        return all(_is_empty(t, named, depth + 1) for t in _field_types(schema))
    return kind == "null" or (isinstance(kind, dict) and _is_empty(kind, named, depth + 1))


def _field_types(schema: Mapping[str, Any]) -> list[Any]:
    return [f.get("type") for f in schema.get("fields") or () if isinstance(f, dict)]
