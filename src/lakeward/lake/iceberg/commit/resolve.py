# SPDX-License-Identifier: Apache-2.0
"""Resolve (design.md 6.4): replaced offsets and keys become positions in data files of the head or of the round.

In a file with ascending offsets a position is the rank; in any other it is looked up in the `__offset` column.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from lakeward.lake.iceberg.commit.change import NewFile
from lakeward.lake.iceberg.datafile.offsetcache import OffsetLoader, positions_of
from lakeward.lake.iceberg.datafile.result import WriteResult, WrittenFile
from lakeward.lake.iceberg.meta.partition import partition_record
from lakeward.lake.iceberg.meta.types import FIELD_ID, to_arrow_field
from lakeward.lake.iceberg.scan.deletefilter import matching_rows
from lakeward.lake.iceberg.scan.files import IndexedFile
from lakeward.model import Bucket, Offsets, OffsetSet, cast_column


@dataclass(frozen=True)
class Candidate:
    """A data file that may contain replaced rows. `load` returns its offsets in file order."""

    file: DataFile
    spec_id: int
    bucket: Bucket | None
    first: int | None
    last: int | None
    load: Callable[[], Offsets]

    @classmethod
    def of(cls, indexed: IndexedFile, loader: OffsetLoader) -> Candidate:
        file = indexed.file
        return cls(file, indexed.spec_id, indexed.bucket, indexed.first, indexed.last, lambda: loader.load(file))


@dataclass(frozen=True)
class Hit:
    """Rows of one data file to delete; positions ascending."""

    file: DataFile
    spec_id: int
    positions: Offsets


@dataclass
class Resolution:
    hits: list[Hit] = field(default_factory=list)
    missing: dict[Bucket, OffsetSet] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(len(h.positions) for h in self.hits)


def resolve(replaced: Mapping[Bucket, OffsetSet], candidates: Iterable[Candidate]) -> Resolution:
    """Searches every file whose bucket and bounds match; a file whose bucket is unknown is searched for all buckets."""
    by_bucket: dict[Bucket | None, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_bucket[candidate.bucket].append(candidate)
    result, found_in = Resolution(), _Hits()
    for bucket, offsets in replaced.items():
        if not offsets:
            continue
        unresolved = _resolve_bucket(offsets, [*by_bucket[bucket], *by_bucket[None]], found_in)
        if unresolved:
            result.missing[bucket] = unresolved
    result.hits = found_in.hits()
    return result


class _Hits:
    def __init__(self) -> None:
        self._parts: dict[str, tuple[Candidate, list[Offsets]]] = {}

    def add(self, candidate: Candidate, positions: Offsets) -> None:
        self._parts.setdefault(candidate.file.file_path, (candidate, []))[1].append(positions)

    def hits(self) -> list[Hit]:
        return [Hit(c.file, c.spec_id, OffsetSet(np.concatenate(parts)).values) for c, parts in self._parts.values()]


def _resolve_bucket(wanted: OffsetSet, candidates: list[Candidate], found_in: _Hits) -> OffsetSet:
    """Returns the offsets that no file has."""
    seen = np.zeros(len(wanted), np.bool_)
    for candidate in candidates:
        low, high = _window(wanted.values, candidate)
        if low == high:
            continue
        mask, positions = positions_of(candidate.load(), wanted.values[low:high])
        if mask.any():
            found_in.add(candidate, positions)
            seen[low:high] |= mask
    return OffsetSet.from_sorted(wanted.values[~seen])


def _window(wanted: Offsets, candidate: Candidate) -> tuple[int, int]:
    """Returns the slice of `wanted` that lies within the file's bounds."""
    if candidate.first is None or candidate.last is None:
        return 0, len(wanted)
    low, high = np.searchsorted(wanted, [candidate.first, candidate.last + 1])
    return int(low), int(high)


BATCH_ROWS = 262_144


def key_schema(schema: Schema) -> pa.Schema:
    """Returns the identifier columns as files have them, in the order of their ids, as in `equality_ids`."""
    return pa.schema([to_arrow_field(schema.find_field(i)) for i in key_ids(schema)])


def key_ids(schema: Schema) -> list[int]:
    return sorted(schema.identifier_field_ids)


def conform_keys(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    table = pa.Table.from_batches(batches)
    columns = [
        table.column(f.name) if table.column(f.name).type == f.type else cast_column(table.column(f.name), f.type)
        for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def find_same_round(io: FileIO, schema: Schema, keys: Sequence[WrittenFile], files: Sequence[Hit]) -> Iterator[Hit]:
    """Finds rows of `files` that the keys delete; the files are older than the keys and of the same round. `files` come
    without positions."""
    if not keys or not files:
        return
    ids = key_ids(schema)
    deleted = pa.concat_tables([t for k in keys for t, _ in read_keys(io, k.path, ids)])
    for file in files:
        row_positions = [
            np.flatnonzero(matching_rows(table, deleted)) + start
            for table, start in read_keys(io, file.file.file_path, ids)
        ]
        positions: Offsets = np.concatenate(row_positions).astype(np.int64) if row_positions else np.empty(0, np.int64)
        if len(positions):
            yield Hit(file.file, file.spec_id, positions)


def merge_hits(hits: Sequence[Hit]) -> list[Hit]:
    """Merges hits to one per file: a row may be deleted by several later sub-splits."""
    by_path: dict[str, list[Hit]] = {}
    for hit in hits:
        by_path.setdefault(hit.file.file_path, []).append(hit)
    return [
        Hit(same[0].file, same[0].spec_id, OffsetSet(np.concatenate([h.positions for h in same])).values)
        for same in by_path.values()
    ]


def read_keys(io: FileIO, path: str, ids: Sequence[int]) -> Iterator[tuple[pa.Table, int]]:
    """Reads key columns with the position of the first row, by field id."""
    with io.new_input(path).open() as source:
        file = pq.ParquetFile(source)
        by_id = {int(f.metadata[FIELD_ID]): f.name for f in file.schema_arrow if f.metadata and FIELD_ID in f.metadata}
        if any(i not in by_id for i in ids):
            return  # older than the key column: none of its rows was live when the table was adopted
        names = [by_id[i] for i in ids]
        start = 0
        for batch in file.iter_batches(BATCH_ROWS, columns=names):
            yield pa.Table.from_batches([batch]).select(names), start
            start += batch.num_rows


def data_candidates(table: Table, results: Sequence[WriteResult]) -> list[Candidate]:
    spec, schema = table.metadata.spec(), table.metadata.schema()
    candidates = []
    for result in results:
        partition = partition_record(spec, schema, result.bucket)
        for file in result.files:
            load = lambda f=file: f.offset_set().values  # noqa: E731
            new_file = file.data_file(partition)
            candidates.append(
                Candidate(new_file, spec.spec_id, result.bucket, file.first_offset, file.last_offset, load)
            )
    return candidates


def key_files(table: Table, results: Sequence[WriteResult]) -> list[NewFile]:
    """Returns equality deletes, in the partition of the split that wrote them."""
    spec, schema = table.metadata.spec(), table.metadata.schema()
    return [
        NewFile(
            spec.spec_id,
            file.data_file(
                partition_record(spec, schema, result.bucket), DataFileContent.EQUALITY_DELETES, key_ids(schema)
            ),
        )
        for result in results
        for file in result.keys
    ]


def same_round_hits(table: Table, results: Sequence[WriteResult]) -> list[Hit]:
    """Finds rows that an earlier result of the bucket wrote and a later one's keys delete. Results are in offset
    order."""
    spec, schema = table.metadata.spec(), table.metadata.schema()
    older: dict[Bucket, list[Hit]] = {}
    hits: list[Hit] = []
    for result in results:
        before = older.setdefault(result.bucket, [])
        hits += find_same_round(table.io, schema, result.keys, before)
        partition = partition_record(spec, schema, result.bucket)
        before += [Hit(f.data_file(partition), spec.spec_id, np.empty(0, np.int64)) for f in result.files]
    return hits
