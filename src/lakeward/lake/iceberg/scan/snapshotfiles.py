# SPDX-License-Identifier: Apache-2.0
"""A snapshot's data files with the deletes that apply to each: positions, keys by sequence number, deletion vectors."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record

from lakeward.lake.iceberg.meta.foreign import ADOPTED
from lakeward.lake.iceberg.meta.location import canonical
from lakeward.lake.iceberg.meta.manifests import first_row_id, load_entries, load_manifests
from lakeward.lake.iceberg.meta.partition import partition_texts
from lakeward.lake.iceberg.meta.summary import summary_of
from lakeward.lake.iceberg.meta.types import PATH_ID, is_clean
from lakeward.lake.iceberg.scan.files import FileIndex, IndexedFile
from lakeward.lake.kept import Kept
from lakeward.model import PARTITION_SEPARATOR, Bucket, OffsetRange
from lakeward.spi import COMMIT_USER, COMMIT_USER_KEY, LakeDelete, LakeFile

_NAME = re.compile(r"/(\d{5,})-\d+-[0-9a-f-]{36}(-\d{5,})?\.[a-z]+$")
"""Names of Iceberg's own writers begin with the number of the task, which is the bucket here."""


def count_offsets(
    metadata: TableMetadata, files: Sequence[IndexedFile], partitions: Sequence[tuple[str, ...] | None]
) -> list[IndexedFile]:
    """Returns the files with bucket and offsets, as far as known. `partitions`: the values of each file's partition,
    None if its spec does not have all of them."""
    schema = metadata.schema()
    if not is_clean(schema) or schema.identifier_field_ids or ADOPTED in metadata.properties:
        return list(files)
    named = [_with_bucket(metadata, f, p) for f, p in zip(files, partitions, strict=True)]
    by_bucket: dict[Bucket, list[int]] = defaultdict(list)
    for at, file in enumerate(named):
        if file.bucket is not None and (file.first is not None or _is_of_flink(metadata, file)):
            by_bucket[file.bucket].append(at)
    for places in by_bucket.values():
        in_order = sorted(places, key=lambda at: (named[at].entry.sequence_number or 0, named[at].first or 0, at))
        counted = count_on([named[at] for at in in_order])
        for at, file in zip(in_order, counted, strict=True):
            named[at] = file
    return named


def count_on(files: Sequence[IndexedFile]) -> list[IndexedFile]:
    """Numbers one bucket's files in the order of their commits: files without offsets continue the one before, or
    precede the first that has some. Pure."""
    counted: list[IndexedFile] = []
    first_known = next((at for at, f in enumerate(files) if f.first is not None), len(files))
    leading = sum(f.file.record_count for f in files[:first_known])
    start = files[first_known].first or 0 if first_known < len(files) else leading
    following = start - leading
    for file in files:
        if file.first is None or file.last is None:
            file = replace(file, first=following, last=following + file.file.record_count - 1)
        assert file.last is not None
        counted.append(file)
        following = file.last + 1
    return counted


def _with_bucket(metadata: TableMetadata, file: IndexedFile, partition: tuple[str, ...] | None) -> IndexedFile:
    name = _NAME.search(file.file.file_path) if file.bucket is None and partition is not None else None
    if name is None or partition is None or not _is_of_flink(metadata, file):
        return file
    return replace(file, bucket=Bucket(PARTITION_SEPARATOR.join(partition), int(name.group(1))))


def _is_of_flink(metadata: TableMetadata, file: IndexedFile) -> bool:
    """By the snapshot that added it; if that is expired, by the form of its name."""
    snapshot = metadata.snapshot_by_id(file.entry.snapshot_id or -1)
    if snapshot is None:
        return _NAME.search(file.file.file_path) is not None
    return summary_of(snapshot).get(COMMIT_USER_KEY) == COMMIT_USER


_REFERENCED, _CONTENT_OFFSET, _CONTENT_SIZE = 17, 18, 19
"""Positions of version 3's fields in PyIceberg's DataFile record."""


@dataclass(frozen=True)
class DeleteEntry:
    file: DataFile
    spec_id: int
    sequence: int

    @cached_property
    def content(self) -> str:
        if self.file.content == DataFileContent.EQUALITY_DELETES:
            return "equality"
        return "vector" if self.file.file_format == FileFormat.PUFFIN else "positions"

    @property
    def referenced(self) -> str | None:
        path: str | None = _extra(self.file, _REFERENCED)
        return path

    @property
    def content_offset(self) -> int | None:
        offset: int | None = _extra(self.file, _CONTENT_OFFSET)
        return offset

    @property
    def content_size(self) -> int | None:
        size: int | None = _extra(self.file, _CONTENT_SIZE)
        return size

    def may_name(self, path: str) -> bool:
        """Whether its `file_path` bounds include this file. Bounds may be truncated, the upper one only upwards."""
        if self.referenced is not None:
            return canonical(self.referenced) == canonical(path)
        low, high = (self.file.lower_bounds or {}).get(PATH_ID), (self.file.upper_bounds or {}).get(PATH_ID)
        raw = path.encode()
        return (low is None or low <= raw) and (high is None or raw <= high or raw.startswith(high))


@dataclass(frozen=True)
class PlannedFile:
    indexed: IndexedFile
    deletes: tuple[DeleteEntry, ...]
    partition: dict[str, str]
    schema: Schema

    @property
    def bucket(self) -> Bucket | None:
        return self.indexed.bucket

    @property
    def file(self) -> DataFile:
        return self.indexed.file

    @property
    def first_offset(self) -> int | None:
        """Returns the offset of its first row, if the rows' offsets have no gaps."""
        first, last = self.indexed.first, self.indexed.last
        is_dense = first is not None and last is not None and 0 <= first == last + 1 - self.file.record_count
        return first if is_dense else None

    def describe(self) -> LakeFile:
        first, last = self.indexed.first, self.indexed.last
        return LakeFile(
            path=self.file.file_path,
            bucket=self.bucket,
            record_count=self.file.record_count,
            size_bytes=self.file.file_size_in_bytes,
            offsets=None if first is None or last is None or first < 0 else OffsetRange(first, last + 1),
            sequence=self.indexed.entry.sequence_number or 0,
            deletes=tuple(self._describe_delete(d) for d in self.deletes),
            first_row_id=first_row_id(self.file),
            partition=self.partition,
        )

    def _describe_delete(self, delete: DeleteEntry) -> LakeDelete:
        return LakeDelete(
            path=delete.file.file_path,
            content=delete.content,
            record_count=delete.file.record_count,
            sequence=delete.sequence,
            equality_columns=tuple(self.schema.find_column_name(i) or str(i) for i in delete.file.equality_ids or ()),
            content_offset=delete.content_offset,
            content_size=delete.content_size,
        )


def plan_files(
    metadata: TableMetadata, io: FileIO, snapshot: Snapshot, partition_keys: tuple[str, ...]
) -> list[PlannedFile]:
    """Cached for rows with their own offsets: a manifest list gives the same result for a schema for ever. For a clean
    table the result also depends on its current snapshots and properties."""
    if is_clean(metadata.schema()) or ADOPTED in metadata.properties:
        return _match(metadata, io, snapshot, partition_keys)
    key = "\n".join((snapshot.manifest_list, str(metadata.current_schema_id), *partition_keys))
    return list(_PLANS.load(key, lambda: tuple(_match(metadata, io, snapshot, partition_keys))))


def _match(
    metadata: TableMetadata, io: FileIO, snapshot: Snapshot, partition_keys: tuple[str, ...]
) -> list[PlannedFile]:
    manifests = load_manifests(io, snapshot)
    index, schema, specs = FileIndex(metadata, partition_keys), metadata.schema(), metadata.specs()
    deletes = LiveDeletes.load(metadata, io, manifests)
    files = list(index.files(io, manifests))
    texts = [partition_texts(specs[f.spec_id], schema, f.file.partition) for f in files]
    values = [tuple(t[k] for k in partition_keys) if all(k in t for k in partition_keys) else None for t in texts]
    return [
        PlannedFile(f, deletes.of(f.entry, f.spec_id), t, schema)
        for f, t in zip(count_offsets(metadata, files, values), texts, strict=True)
    ]


_PLANS: Kept[tuple[PlannedFile, ...]] = Kept(200_000, lambda files: len(files) + sum(len(f.deletes) for f in files))
"""Files of a snapshot with their deletes."""


class LiveDeletes:
    """Iceberg's rules: positions apply from their own sequence number on, keys to strictly older files of the partition
    (of every partition, if written without one), a vector to the one file that it names, instead of positions."""

    def __init__(self, entries: Sequence[DeleteEntry], unpartitioned: set[int]) -> None:
        self._by_partition: dict[tuple[int, Record], list[DeleteEntry]] = defaultdict(list)
        self._everywhere: list[DeleteEntry] = []
        self._by_file: dict[str, list[DeleteEntry]] = defaultdict(list)
        for entry in entries:
            if entry.referenced is not None:
                self._by_file[canonical(entry.referenced)].append(entry)
            elif entry.content == "equality" and entry.spec_id in unpartitioned:
                self._everywhere.append(entry)
            else:
                self._by_partition[(entry.spec_id, entry.file.partition)].append(entry)

    @classmethod
    def load(
        cls,
        metadata: TableMetadata,
        io: FileIO,
        manifests: Sequence[ManifestFile],
        load: Callable[[FileIO, ManifestFile], Sequence[ManifestEntry]] = load_entries,
    ) -> LiveDeletes:
        """Returns the delete files in these manifests, as far as `load` returns them."""
        entries = [
            DeleteEntry(e.data_file, m.partition_spec_id, e.sequence_number or 0)
            for m in manifests
            if m.content == ManifestContent.DELETES
            for e in load(io, m)
        ]
        return cls(entries, unpartitioned={i for i, s in metadata.specs().items() if s.is_unpartitioned()})

    def of(self, data: ManifestEntry, spec_id: int) -> tuple[DeleteEntry, ...]:
        sequence, path = data.sequence_number or 0, data.data_file.file_path
        near = (*self._near(data.data_file, spec_id), *self._everywhere)
        return _without_replaced([d for d in near if _applies(d, sequence, path)])

    def by_position(self, file: DataFile, spec_id: int) -> tuple[DeleteEntry, ...]:
        """Returns the vector of a data file, or else the positional delete files that may name it."""
        near = self._near(file, spec_id)
        return _without_replaced([d for d in near if d.content != "equality" and d.may_name(file.file_path)])

    def _near(self, file: DataFile, spec_id: int) -> list[DeleteEntry]:
        named = self._by_file.get(canonical(file.file_path), [])
        return [*named, *self._by_partition.get((spec_id, file.partition), [])]


def _without_replaced(deletes: list[DeleteEntry]) -> tuple[DeleteEntry, ...]:
    has_vector = any(d.content == "vector" for d in deletes)
    return tuple(d for d in deletes if not has_vector or d.content != "positions")


def _applies(delete: DeleteEntry, sequence: int, path: str) -> bool:
    if delete.content == "equality":
        return sequence < delete.sequence
    return sequence <= delete.sequence and delete.may_name(path)


def _extra(file: DataFile, at: int) -> Any:
    return file._data[at] if len(file._data) > at else None
