# SPDX-License-Identifier: Apache-2.0
"""Manifests and manifest lists: read once and kept (they never change), written in one block, merged by size tiers."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Literal

from pydantic_core import to_json
from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    _inherit_from_manifest,
    construct_partition_summaries,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IntegerType, ListType, NestedField, StructType

from lakeward.lake.iceberg.meta.ownpaths import check_path, open_manifest
from lakeward.lake.kept import Kept

LAYOUT: Literal[3] = 3
"""Records in memory have the newest layout, which knows every older field; what is written has the table's version."""

_UNASSIGNED = -1
_FANOUT = 8
"""So many manifests of one tier become one of the next: a commit rewrites each entry log8(n) times in its life, and the
manifest list stays below 8 per tier."""

_CODEC = "deflate"
_CACHED_ENTRIES = 200_000


FileKey = tuple[str, int | None]
"""What names a file of a snapshot: its path, and where in it a deletion vector begins."""

_FIRST_ROW_ID, _CONTENT_OFFSET = 16, 18
"""Positions of version 3's fields in PyIceberg's DataFile record."""

_MANIFEST_FIRST_ROW_ID = 15
"""The same in its ManifestFile record."""


def file_key(file: DataFile) -> FileKey:
    return file.file_path, file._data[_CONTENT_OFFSET] if len(file._data) > _CONTENT_OFFSET else None


def first_row_id(file: DataFile) -> int | None:
    """The row id of a data file's first row; None: nobody gave it one yet."""
    row_id: int | None = file._data[_FIRST_ROW_ID] if len(file._data) > _FIRST_ROW_ID else None
    return row_id


CACHE: Kept[tuple[ManifestEntry, ...]] = Kept(_CACHED_ENTRIES, len)
"""Live entries per manifest path: rounds of a table share most manifests."""


_LISTS: Kept[tuple[ManifestFile, ...]] = Kept(_CACHED_ENTRIES, len)
"""Manifests per manifest list."""


def load_manifests(io: FileIO, snapshot: Snapshot | None) -> list[ManifestFile]:
    """Not to be changed: they are shared."""
    return [] if snapshot is None else list(load_list(io, snapshot.manifest_list))


def load_list(io: FileIO, path: str) -> tuple[ManifestFile, ...]:
    return _LISTS.load(check_path(io, path), lambda: _read_list(io, path))


def _read_list(io: FileIO, path: str) -> tuple[ManifestFile, ...]:
    with AvroFile[ManifestFile](
        open_manifest(io, path),
        MANIFEST_LIST_FILE_SCHEMAS[LAYOUT],
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as reader:
        return tuple(reader)


def load_entries(io: FileIO, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
    """Live entries, with what they inherit. Not to be changed: they are shared."""
    live = lambda: tuple(e for e in read_entries(io, manifest) if e.status != ManifestEntryStatus.DELETED)  # noqa: E731
    path, first = check_path(io, manifest.manifest_path), manifest._data[_MANIFEST_FIRST_ROW_ID]
    if first is None:
        return CACHE.load(path, live)
    return CACHE.load(manifest_key(manifest), lambda: _with_row_ids(CACHE.load(path, live), first))


def manifest_key(manifest: ManifestFile) -> str:
    """What its entries say depends on the list that names it: a table that moved to version 3 gives row ids to files
    that had none."""
    first = manifest._data[_MANIFEST_FIRST_ROW_ID]
    return manifest.manifest_path if first is None else f"{manifest.manifest_path}#{first}"


def _with_row_ids(entries: Sequence[ManifestEntry], first: int) -> tuple[ManifestEntry, ...]:
    """Files without a row id of their own are counted on from the manifest's, in their order."""
    numbered = []
    for entry in entries:
        if first_row_id(entry.data_file) is None:
            file = copy(entry.data_file)
            file._data = [*file._data]
            file[_FIRST_ROW_ID] = first
            first += file.record_count
            entry = copy(entry)
            entry._data = [*entry._data]
            entry.data_file = file
        numbered.append(entry)
    return tuple(numbered)


def read_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """All entries, removed ones included."""
    with AvroFile[ManifestEntry](
        open_manifest(io, manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[LAYOUT],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        return [_inherit_from_manifest(entry, manifest) for entry in reader]


@dataclass(frozen=True, kw_only=True)
class ManifestTarget:
    """Where and for which snapshot manifests are written."""

    io: FileIO
    folder: str
    prefix: str
    schema: Schema
    snapshot_id: int
    version: Literal[2, 3] = 2
    """The table's format version."""

    dropped: tuple[NestedField, ...] = ()
    """Columns that the table once had: files may lie in partitions by them still."""

    paths: list[str] = field(default_factory=list)
    """Every file written for it so far."""

    @property
    def sources(self) -> Schema:
        """What partition fields were made of, under names that nothing else has."""
        gone = [f.model_copy(update={"name": f"{f.name}#{f.field_id}", "required": False}) for f in self.dropped]
        return Schema(*self.schema.fields, *gone) if gone else self.schema

    def new_path(self, kind: str, suffix: str = "avro") -> str:
        self.paths.append(f"{self.folder}/{self.prefix}{kind}-{uuid.uuid4().hex[:12]}.{suffix}")
        return self.paths[-1]


def dropped_columns(schema: Schema, schemas: Iterable[Schema]) -> tuple[NestedField, ...]:
    """Those of older schemas that this one has no more, as they were last."""
    now = {f.field_id for f in schema.fields}
    gone = {f.field_id: f for s in sorted(schemas, key=lambda s: s.schema_id) for f in s.fields}
    return tuple(f for i, f in gone.items() if i not in now)


def write_manifest(
    target: ManifestTarget, spec: PartitionSpec, content: ManifestContent, entries: Sequence[ManifestEntry]
) -> ManifestFile:
    path, version = target.new_path("m"), _version(target, entries)
    metadata = {
        "schema": target.schema.model_dump_json(),
        "partition-spec": to_json(spec.fields).decode(),
        "partition-spec-id": str(spec.spec_id),
        "format-version": str(version),
        "content": "deletes" if content == ManifestContent.DELETES else "data",
        "avro.codec": _CODEC,
    }
    output = target.io.new_output(path)
    with AvroOutputFile[ManifestEntry](
        output, _entry_schema(spec, target.sources, version), "manifest_entry", metadata=metadata
    ) as writer:
        writer.write_block(list(entries))
    return _describe(target, spec, content, entries, path, len(output))


def _version(target: ManifestTarget, entries: Sequence[ManifestEntry]) -> Literal[2, 3]:
    """The table's; but a vector that another engine left in a table of version 2 has fields of version 3."""
    return 3 if any(e.data_file.file_format == FileFormat.PUFFIN for e in entries) else target.version


def _entry_schema(spec: PartitionSpec, schema: Schema, version: Literal[2, 3]) -> Schema:
    """The version's layout with the partition's type, and `equality_ids` as list<int>: PyIceberg says long, and Java
    fails on it.
    """
    partition = StructType(
        *[
            NestedField(f.field_id, f.name, f.field_type, required=f.required)
            for f in spec.partition_type(schema).fields
        ]
    )
    ids = NestedField(135, "equality_ids", ListType(136, IntegerType(), element_required=True), required=False)
    swapped = {102: NestedField(102, "partition", partition, required=True), 135: ids}
    data_file = StructType(*[swapped.get(f.field_id, f) for f in DATA_FILE_TYPE[version].fields])
    fields = MANIFEST_ENTRY_SCHEMAS[version].fields
    return Schema(*[NestedField(2, "data_file", data_file, required=True) if f.field_id == 2 else f for f in fields])


def _describe(
    target: ManifestTarget,
    spec: PartitionSpec,
    content: ManifestContent,
    entries: Sequence[ManifestEntry],
    path: str,
    length: int,
) -> ManifestFile:
    files = dict.fromkeys(ManifestEntryStatus, 0)
    rows = dict.fromkeys(ManifestEntryStatus, 0)
    for entry in entries:
        files[entry.status] += 1
        rows[entry.status] += entry.data_file.record_count
    live = [e for e in entries if e.status != ManifestEntryStatus.DELETED]
    known = [e.sequence_number for e in live if e.sequence_number is not None]
    return ManifestFile.from_args(
        _table_format_version=LAYOUT,
        manifest_path=path,
        manifest_length=length,
        partition_spec_id=spec.spec_id,
        content=content,
        sequence_number=_UNASSIGNED,
        min_sequence_number=min(known, default=_UNASSIGNED),  # one that is given is below the commit's own
        added_snapshot_id=target.snapshot_id,
        added_files_count=files[ManifestEntryStatus.ADDED],
        existing_files_count=files[ManifestEntryStatus.EXISTING],
        deleted_files_count=files[ManifestEntryStatus.DELETED],
        added_rows_count=rows[ManifestEntryStatus.ADDED],
        existing_rows_count=rows[ManifestEntryStatus.EXISTING],
        deleted_rows_count=rows[ManifestEntryStatus.DELETED],
        partitions=construct_partition_summaries(spec, target.sources, [e.data_file.partition for e in entries]),
        key_metadata=None,
    )


def unnumbered_rows(manifests: Iterable[ManifestFile]) -> int:
    """How many row ids the next list gives out: each data manifest without one gets as many as it has rows."""
    return sum(_row_count(m) for m in manifests if _lacks_row_id(m))


def _lacks_row_id(manifest: ManifestFile) -> bool:
    return manifest.content == ManifestContent.DATA and manifest._data[_MANIFEST_FIRST_ROW_ID] is None


def _row_count(manifest: ManifestFile) -> int:
    return (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)


def write_manifest_list(
    target: ManifestTarget,
    parent_id: int | None,
    sequence: int,
    manifests: Iterable[ManifestFile],
    next_row_id: int | None = None,
) -> str:
    """`next_row_id`: the table's, from version 3 on; data manifests that have no row id are counted on from it."""
    path = target.new_path(f"snap-{target.snapshot_id}")
    metadata = {
        "snapshot-id": str(target.snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(sequence),
        "format-version": str(target.version),
        "avro.codec": _CODEC,
        **({} if next_row_id is None else {"first-row-id": str(next_row_id)}),
    }
    schema = MANIFEST_LIST_FILE_SCHEMAS[target.version]
    with AvroOutputFile[ManifestFile](target.io.new_output(path), schema, "manifest_file", metadata=metadata) as writer:
        numbered = list(_numbered(manifests, sequence, next_row_id))
        writer.write_block(numbered)
    _LISTS.put(path, tuple(numbered))
    return path


def _numbered(manifests: Iterable[ManifestFile], sequence: int, next_row_id: int | None) -> Iterator[ManifestFile]:
    for manifest in manifests:
        numbered = copy(manifest)
        numbered._data = list(manifest._data)
        if numbered.sequence_number == _UNASSIGNED:
            numbered.sequence_number = sequence
        if numbered.min_sequence_number == _UNASSIGNED:
            numbered.min_sequence_number = sequence
        if next_row_id is not None and _lacks_row_id(numbered):
            numbered[_MANIFEST_FIRST_ROW_ID] = next_row_id
            next_row_id += _row_count(numbered)
        yield numbered


def added(files: Iterable[tuple[DataFile, int | None]], snapshot_id: int) -> list[ManifestEntry]:
    """Entries of new files with their data sequence number; None: the snapshot's, inherited."""
    return [ManifestEntry(ManifestEntryStatus.ADDED, snapshot_id, sequence, None, f) for f, sequence in files]


def remember(
    manifest: ManifestFile, new: Sequence[ManifestEntry], stay: Sequence[ManifestEntry], sequence: int
) -> None:
    """Keeps the live entries of a manifest just written, new ones with what they will inherit. If its snapshot never
    lands, nobody asks.
    """
    inherited = []
    for entry in new:
        entry.data_file.spec_id = manifest.partition_spec_id
        own = sequence if entry.sequence_number is None else entry.sequence_number
        inherited.append(ManifestEntry(entry.status, manifest.added_snapshot_id, own, sequence, entry.data_file))
    CACHE.put(manifest.manifest_path, (*inherited, *stay))


def removed(entries: Iterable[ManifestEntry], snapshot_id: int) -> list[ManifestEntry]:
    """Entries that say which files the snapshot took away."""
    return [
        ManifestEntry(ManifestEntryStatus.DELETED, snapshot_id, e.sequence_number, e.file_sequence_number, e.data_file)
        for e in entries
    ]


def existing(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    return [
        ManifestEntry(
            ManifestEntryStatus.EXISTING, e.snapshot_id, e.sequence_number, e.file_sequence_number, e.data_file
        )
        for e in entries
    ]


def plan_merges(manifests: Sequence[ManifestFile], fanout: int = _FANOUT) -> list[list[ManifestFile]]:
    """Groups to be merged: manifests of one content, spec and size tier, as soon as there are `fanout` of
    them. Pure.
    """
    tiers: dict[tuple[ManifestContent, int, int], list[ManifestFile]] = defaultdict(list)
    for manifest in manifests:
        tiers[(manifest.content, manifest.partition_spec_id, _tier(live_count(manifest), fanout))].append(manifest)
    return [group for group in tiers.values() if len(group) >= fanout]


def live_count(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def is_small(manifest: ManifestFile) -> bool:
    """Of the lowest tier: its entries are written again with those of the next commit, which costs less than an open
    costs every reader."""
    return live_count(manifest) < _FANOUT


def _tier(count: int, fanout: int) -> int:
    tier = 0
    while count >= fanout:
        count //= fanout
        tier += 1
    return tier


def merge_manifests(
    target: ManifestTarget, manifests: Sequence[ManifestFile], specs: dict[int, PartitionSpec]
) -> list[ManifestFile]:
    """The same live files in fewer manifests. Empty ones go."""
    kept = [m for m in manifests if live_count(m)]
    for group in plan_merges(kept):
        entries = existing(e for m in group for e in load_entries(target.io, m))
        merged = write_manifest(target, specs[group[0].partition_spec_id], group[0].content, entries)
        CACHE.put(merged.manifest_path, tuple(entries))
        gone = {m.manifest_path for m in group}
        kept = [m for m in kept if m.manifest_path not in gone] + [merged]
    return kept
