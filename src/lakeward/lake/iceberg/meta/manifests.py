# SPDX-License-Identifier: Apache-2.0
"""Manifests and manifest lists: read once and cached (they never change), written in one block, merged by size
tiers.
"""

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
"""Records in memory have the newest layout, which has every older field; files are written in the table's version."""

_UNASSIGNED = -1
_FANOUT = 8
"""This many manifests of one tier are merged into one of the next: each entry is rewritten log8(n) times, and the
manifest list has fewer than 8 per tier."""

_CODEC = "deflate"
_CACHED_ENTRIES = 200_000


FileKey = tuple[str, int | None]
"""Identifies a file of a snapshot: its path, and the start of a deletion vector in it."""

_FIRST_ROW_ID, _CONTENT_OFFSET = 16, 18
"""Positions of version 3's fields in PyIceberg's DataFile record."""

_MANIFEST_FIRST_ROW_ID = 15
"""The same in its ManifestFile record."""


def file_key(file: DataFile) -> FileKey:
    return file.file_path, file._data[_CONTENT_OFFSET] if len(file._data) > _CONTENT_OFFSET else None


def first_row_id(file: DataFile) -> int | None:
    """Returns the row id of a data file's first row; None: not assigned yet."""
    row_id: int | None = file._data[_FIRST_ROW_ID] if len(file._data) > _FIRST_ROW_ID else None
    return row_id


CACHE: Kept[tuple[ManifestEntry, ...]] = Kept(_CACHED_ENTRIES, len)
"""Live entries per manifest path: rounds of a table share most manifests."""


_LISTS: Kept[tuple[ManifestFile, ...]] = Kept(_CACHED_ENTRIES, len)
"""Manifests per manifest list."""


def load_manifests(io: FileIO, snapshot: Snapshot | None) -> list[ManifestFile]:
    """Reads a list. The result is shared and must not be changed."""
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
    """Reads live entries with their inherited values. The result is shared and must not be changed."""
    live = lambda: tuple(e for e in read_entries(io, manifest) if e.status != ManifestEntryStatus.DELETED)  # noqa: E731
    path, first = check_path(io, manifest.manifest_path), manifest._data[_MANIFEST_FIRST_ROW_ID]
    if first is None:
        return CACHE.load(path, live)
    return CACHE.load(manifest_key(manifest), lambda: _with_row_ids(CACHE.load(path, live), first))


def manifest_key(manifest: ManifestFile) -> str:
    """Cache key of a manifest. Inherited values depend on the list that names it: a table upgraded to version 3 assigns
    row ids to files that had none."""
    first = manifest._data[_MANIFEST_FIRST_ROW_ID]
    return manifest.manifest_path if first is None else f"{manifest.manifest_path}#{first}"


def _with_row_ids(entries: Sequence[ManifestEntry], first: int) -> tuple[ManifestEntry, ...]:
    """Numbers files without a row id from the manifest's first row id on, in their order."""
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
    """Reads all entries, removed ones included."""
    with AvroFile[ManifestEntry](
        open_manifest(io, manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[LAYOUT],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        return [_inherit_from_manifest(entry, manifest) for entry in reader]


@dataclass(frozen=True, kw_only=True)
class ManifestTarget:
    """Place and snapshot for which manifests are written."""

    io: FileIO
    folder: str
    prefix: str
    schema: Schema
    snapshot_id: int
    version: Literal[2, 3] = 2
    """The table's format version."""

    dropped: tuple[NestedField, ...] = ()
    """Columns that the table once had: files may still be partitioned by them."""

    paths: list[str] = field(default_factory=list)
    """Every file written for it so far."""

    @property
    def sources(self) -> Schema:
        """Source columns of partition fields, under names that no other column has."""
        gone = [f.model_copy(update={"name": f"{f.name}#{f.field_id}", "required": False}) for f in self.dropped]
        return Schema(*self.schema.fields, *gone) if gone else self.schema

    def new_path(self, kind: str, suffix: str = "avro") -> str:
        self.paths.append(f"{self.folder}/{self.prefix}{kind}-{uuid.uuid4().hex[:12]}.{suffix}")
        return self.paths[-1]


def dropped_columns(schema: Schema, schemas: Iterable[Schema]) -> tuple[NestedField, ...]:
    """Returns columns of older schemas that this one does not have, in their last form."""
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
    """Returns the table's version; a foreign vector in a table of version 2 has fields of version 3."""
    return 3 if any(e.data_file.file_format == FileFormat.PUFFIN for e in entries) else target.version


def _entry_schema(spec: PartitionSpec, schema: Schema, version: Literal[2, 3]) -> Schema:
    """Returns the version's layout with the partition's type, and `equality_ids` as list<int>: PyIceberg has long,
    which Java refuses."""
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
    numbers = [e.sequence_number for e in live if e.sequence_number is not None]
    return ManifestFile.from_args(
        _table_format_version=LAYOUT,
        manifest_path=path,
        manifest_length=length,
        partition_spec_id=spec.spec_id,
        content=content,
        sequence_number=_UNASSIGNED,
        min_sequence_number=min(numbers, default=_UNASSIGNED),  # a set number is below the commit's own
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
    """Counts the row ids that the next list assigns: one per row of each data manifest without a row id."""
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
    """Writes a list. `next_row_id`: the table's, from version 3 on; data manifests without a row id are numbered from
    it."""
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
    """Writes entries of new files with their data sequence number; None: inherited from the snapshot."""
    return [ManifestEntry(ManifestEntryStatus.ADDED, snapshot_id, sequence, None, f) for f, sequence in files]


def remember(
    manifest: ManifestFile, new: Sequence[ManifestEntry], stay: Sequence[ManifestEntry], sequence: int
) -> None:
    """Caches the live entries of a manifest that was just written, new ones with the values that they inherit. If its
    snapshot never lands, they are not used."""
    inherited = []
    for entry in new:
        entry.data_file.spec_id = manifest.partition_spec_id
        entry_sequence = sequence if entry.sequence_number is None else entry.sequence_number
        inherited.append(
            ManifestEntry(entry.status, manifest.added_snapshot_id, entry_sequence, sequence, entry.data_file)
        )
    CACHE.put(manifest.manifest_path, (*inherited, *stay))


def removed(entries: Iterable[ManifestEntry], snapshot_id: int) -> list[ManifestEntry]:
    """Writes entries of files that the snapshot removed."""
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
    """Plans groups of manifests to merge: of one content, spec and size tier, once there are `fanout` of them. Pure."""
    tiers: dict[tuple[ManifestContent, int, int], list[ManifestFile]] = defaultdict(list)
    for manifest in manifests:
        tiers[(manifest.content, manifest.partition_spec_id, _tier(live_count(manifest), fanout))].append(manifest)
    return [group for group in tiers.values() if len(group) >= fanout]


def live_count(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def is_small(manifest: ManifestFile) -> bool:
    """Whether a manifest is in the lowest tier: its entries are written again with those of the next commit, which
    costs less than one more file for every reader."""
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
    """Merges manifests with the same live files into fewer, and drops empty ones."""
    remaining = [m for m in manifests if live_count(m)]
    for group in plan_merges(remaining):
        entries = existing(e for m in group for e in load_entries(target.io, m))
        merged = write_manifest(target, specs[group[0].partition_spec_id], group[0].content, entries)
        CACHE.put(merged.manifest_path, tuple(entries))
        merged_paths = {m.manifest_path for m in group}
        remaining = [m for m in remaining if m.manifest_path not in merged_paths] + [merged]
    return remaining
