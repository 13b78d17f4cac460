# SPDX-License-Identifier: Apache-2.0
"""Finds rows by key (design-2.md 5): for changelogs that do not record the place of a replaced row, its key is looked
up in the files of its bucket and becomes a position.

The keys of a file are cached between rounds, as an index after the second look-up; they can be read again from the key
columns.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from lakeward.lake.iceberg.commit.ground import IcebergGround
from lakeward.lake.iceberg.commit.resolve import Hit, key_ids, key_schema, read_keys
from lakeward.lake.iceberg.datafile.result import WriteResult
from lakeward.lake.iceberg.scan.deletefilter import DeleteFilter
from lakeward.lake.iceberg.scan.snapshotfiles import PlannedFile, plan_files
from lakeward.lake.kept import Kept
from lakeward.model import Bucket, Offsets, cast_column

KeyCodes = npt.NDArray[Any]
"""A key as one value: a single number itself, else 16 bytes."""

_KEPT_BYTES = 320_000_000
"""The most bytes of keys that a process caches between rounds."""

_CLOSE = 8
"""The largest span of the keys, per key: at most 32 bytes of memory for each, and a tenth of the time of a sort."""

_CHUNK_ROWS = 65_536
"""This many keys, and values computed from them, fit into a core's own cache."""


@dataclass(frozen=True)
class CloseKeys:
    """Keys that are numbers and close together, as those of a sequence are: the position of each number from the lowest
    on, -1 if the file has no such key."""

    low: int
    positions: npt.NDArray[np.signedinteger[Any]]

    @property
    def nbytes(self) -> int:
        return self.positions.nbytes

    def find(self, wanted: KeyCodes) -> Offsets:
        """Returns the positions of all rows with one of these keys, ascending. `wanted` is ascending."""
        start = np.searchsorted(wanted, self.low)
        stop = np.searchsorted(wanted, self.low + len(self.positions) - 1, side="right")
        found = self.positions[wanted[start:stop] - self.low]
        return np.sort(found[found >= 0]).astype(np.int64)


@dataclass(frozen=True)
class SortedKeys:
    """Keys of any type in ascending order, with the position of each."""

    codes: KeyCodes
    positions: Offsets

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.positions.nbytes

    def find(self, wanted: KeyCodes) -> Offsets:
        """As `CloseKeys.find`."""
        low, high = (np.searchsorted(self.codes, wanted, side=side) for side in ("left", "right"))
        count = high - low
        several = [np.arange(a, b) for a, b in zip(low[count > 1], high[count > 1], strict=True)]
        return np.sort(self.positions[np.concatenate([low[count == 1], *several])])


def find_replaced(ground: IcebergGround, partition_keys: tuple[str, ...], results: Sequence[WriteResult]) -> list[Hit]:
    """Finds live rows of the head whose keys the results delete. Rows that a key deletes already may be included, which
    changes nothing."""
    table, head = ground.table, ground.head
    schema = table.metadata.schema()
    deleted_keys = _wanted(table.io, schema, results)
    if head is None or not deleted_keys:
        return []
    deletes, hits = DeleteFilter(table.io, schema), []
    for planned in plan_files(table.metadata, table.io, head, partition_keys):
        keys = _of_file(planned, deleted_keys)
        if keys is None or not _may_hold(planned.file, schema, keys):
            continue
        positions = _find_rows(table.io, schema, planned.file, keys)
        if len(positions):
            alive = np.setdiff1d(positions, deletes.positions(planned.describe()), assume_unique=True)
            hits += [Hit(planned.file, planned.indexed.spec_id, alive)] if len(alive) else []
    return hits


def encode_keys(rows: pa.Table) -> KeyCodes:
    """Encodes keys: one value for each row, equal only for equal keys; columns have the lake's types. Only rows deleted
    before the table was adopted have nulls in keys; they may match some key, and are deleted already."""
    columns = [column.combine_chunks() for column in rows.columns]
    if len(columns) <= 2 and all(map(_is_number, columns)):
        numbers = [_numbers(column) for column in columns]
        if len(numbers) == 1:
            return numbers[0]
        return np.ascontiguousarray(np.stack(numbers, axis=1).astype(">i8")).view("S16").ravel()
    texts = zip(*([_text(value) for value in column.to_pylist()] for column in columns), strict=True)
    return np.array([blake2b(b"".join(parts), digest_size=16).digest() for parts in texts], "S16")


def _wanted(io: FileIO, schema: Schema, results: Sequence[WriteResult]) -> dict[Bucket, KeyCodes]:
    parts: dict[Bucket, list[KeyCodes]] = defaultdict(list)
    for result in results:
        parts[result.bucket] += [codes for file in result.keys for codes in _codes(io, schema, file.path)]
    return {bucket: _ascending(codes) for bucket, codes in parts.items() if codes}


def _ascending(parts: Sequence[KeyCodes]) -> KeyCodes:
    """Merges sorted keys without duplicates. NumPy's `unique` takes sixteen times as long for a million numbers as
    sorting them."""
    codes = np.sort(np.concatenate(parts))
    return codes[np.concatenate([[True], codes[1:] != codes[:-1]])] if len(codes) else codes


def _of_file(planned: PlannedFile, wanted: dict[Bucket, KeyCodes]) -> KeyCodes | None:
    """Returns the keys to look up in a file; all of them if it does not record its bucket."""
    if planned.bucket is not None:
        return wanted.get(planned.bucket)
    return _ascending(list(wanted.values()))


def _may_hold(file: DataFile, schema: Schema, keys: KeyCodes) -> bool:
    """Whether a file may contain a key, by the bounds of a key column of type long."""
    ids = key_ids(schema)
    low, high = ((bounds or {}).get(ids[0]) for bounds in (file.lower_bounds, file.upper_bounds))
    if len(ids) > 1 or keys.dtype != np.int64 or low is None or high is None or len(low) != 8 or len(high) != 8:
        return True
    return bool(struct.unpack("<q", low)[0] <= keys[-1] and keys[0] <= struct.unpack("<q", high)[0])


def _find_rows(io: FileIO, schema: Schema, file: DataFile, wanted: KeyCodes) -> Offsets:
    codes = _KEPT.find(file.file_path)
    if codes is None:
        parts = [*_codes(io, schema, file.file_path)]
        codes = np.concatenate(parts) if parts else np.empty(0, np.int64)
        if (positions := find_among(codes, wanted)) is not None:
            _KEPT.put(file.file_path, codes)
            return positions
    if isinstance(codes, np.ndarray):
        codes = index_keys(codes)
        _KEPT.put(file.file_path, codes)
    return codes.find(wanted)


def find_among(codes: KeyCodes, wanted: KeyCodes) -> Offsets | None:
    """As `find` of their index, which takes five times as long to build as one pass over all keys. `wanted` is not
    empty. None: the keys are not numbers, or the requested ones are too far apart."""
    if not len(codes) or codes.dtype != np.int64:
        return None
    low, span = int(wanted[0]), int(wanted[-1]) - int(wanted[0]) + 1
    if span > _CLOSE * len(codes):
        return None
    is_wanted = np.zeros(span + 1, np.bool_)  # the last element is for every number outside
    is_wanted[wanted - low] = True
    parts = []
    for start in range(0, len(codes), _CHUNK_ROWS):
        above = (codes[start : start + _CHUNK_ROWS] - low).view(np.uint64)  # lower ones wrap above the span
        parts.append(np.flatnonzero(is_wanted[np.minimum(above, span).view(np.int64)]) + start)
    return np.concatenate(parts)


def index_keys(codes: KeyCodes) -> CloseKeys | SortedKeys:
    close = _find_close(codes) if codes.dtype == np.int64 and len(codes) else None
    if close is not None:
        return close
    order = np.argsort(codes, kind="stable")
    return SortedKeys(codes[order], order.astype(np.int64))


def _find_close(codes: npt.NDArray[np.int64]) -> CloseKeys | None:
    """None: they are too far apart, or one occurs twice."""
    low, span = int(codes.min()), int(codes.max()) - int(codes.min()) + 1
    if span > _CLOSE * len(codes):
        return None
    kind = np.int32 if len(codes) < 2**31 else np.int64
    positions: npt.NDArray[np.signedinteger[Any]] = np.full(span, -1, kind)
    positions[codes - low] = np.arange(len(codes), dtype=kind)
    return CloseKeys(low, positions) if np.count_nonzero(positions >= 0) == len(codes) else None


def _codes(io: FileIO, schema: Schema, path: str) -> Iterator[KeyCodes]:
    kinds = key_schema(schema)
    for rows, _ in read_keys(io, path, key_ids(schema)):
        columns = [cast_column(c, f.type) for c, f in zip(rows.columns, kinds, strict=True)]
        yield encode_keys(pa.Table.from_arrays(columns, kinds.names))


def _is_number(column: pa.Array) -> bool:
    kind = column.type
    return bool(
        pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind) or pa.types.is_time64(kind)
    )


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    numbers = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    filled = numbers.fill_null(0) if numbers.null_count else numbers
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.int64)


def _text(value: object) -> bytes:
    raw = value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else repr(value).encode()
    return b"%d:%b" % (len(raw), raw)


_KEPT: Kept[KeyCodes | CloseKeys | SortedKeys] = Kept(_KEPT_BYTES, lambda keys: keys.nbytes)
