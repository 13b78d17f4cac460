# SPDX-License-Identifier: Apache-2.0
"""Deleted positions as files: positional delete files in format version 2, deletion vectors in version 3."""

from __future__ import annotations

import struct
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.typedef import Record

from lakeward.lake.iceberg.commit.change import NewFile
from lakeward.lake.iceberg.commit.ground import IcebergGround
from lakeward.lake.iceberg.commit.resolve import Hit
from lakeward.lake.iceberg.datafile.puffin import Blob, encode_puffin
from lakeward.lake.iceberg.datafile.result import WrittenFile
from lakeward.lake.iceberg.meta.location import canonical, data_folder, is_ours
from lakeward.lake.iceberg.meta.manifests import LAYOUT, FileKey, file_key, load_entries, load_manifests, manifest_key
from lakeward.lake.iceberg.meta.types import FIELD_ID, PATH_ID, POSITION_ID
from lakeward.lake.iceberg.meta.version import table_version
from lakeward.lake.iceberg.scan.deletefilter import DeleteFilter
from lakeward.lake.iceberg.scan.snapshotfiles import DeleteEntry, LiveDeletes, plan_files
from lakeward.lake.kept import Kept
from lakeward.model import GONE_PARTITION, Bucket, OffsetMap, Offsets, OffsetSet, TableInfo

_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={FIELD_ID: str(PATH_ID).encode()}),
        pa.field("pos", pa.int64(), nullable=False, metadata={FIELD_ID: str(POSITION_ID).encode()}),
    ]
)
_DICTIONARY = pa.schema([_SCHEMA.field(0).with_type(pa.dictionary(pa.int32(), pa.string())), _SCHEMA.field(1)])


def write_deletes(io: FileIO, folder: str, prefix: str, hits: Sequence[Hit]) -> list[tuple[int, DataFile]]:
    """Writes one delete file per spec and partition of the data files that it names, ascending by path and position."""
    groups: dict[tuple[int, Record], list[Hit]] = defaultdict(list)
    for hit in hits:
        groups[(hit.spec_id, hit.file.partition)].append(hit)
    delete_files = []
    for (spec_id, partition), group in groups.items():
        path = f"{folder}/{prefix}d-{uuid.uuid4().hex[:12]}.parquet"
        delete_files.append((spec_id, _write(io, path, partition, sorted(group, key=lambda h: h.file.file_path))))
    return delete_files


def _write(io: FileIO, path: str, partition: Record, hits: list[Hit]) -> DataFile:
    paths = [h.file.file_path for h in hits]
    positions = np.concatenate([h.positions for h in hits])
    index = np.repeat(np.arange(len(hits), dtype=np.int32), [len(h.positions) for h in hits])
    column = pa.DictionaryArray.from_arrays(pa.array(index), pa.array(paths))
    table = pa.Table.from_arrays([column, pa.array(positions)], schema=_DICTIONARY)
    with io.new_output(path).create(overwrite=True) as out:
        # Plain strings in the file: iceberg-rust refuses large_string, hence no Arrow schema either.
        with pq.ParquetWriter(
            out, _DICTIONARY, compression="zstd", use_dictionary=["file_path"], store_schema=False
        ) as writer:
            writer.write_table(table)
        size = out.tell()
    ids = (PATH_ID, POSITION_ID)
    written = WrittenFile(
        path=path,
        record_count=len(positions),
        size_bytes=size,
        first_offset=0,
        last_offset=0,
        value_counts=dict.fromkeys(ids, len(positions)),
        null_value_counts=dict.fromkeys(ids, 0),
        lower_bounds={PATH_ID: paths[0].encode(), POSITION_ID: struct.pack("<q", int(positions.min()))},
        upper_bounds={PATH_ID: paths[-1].encode(), POSITION_ID: struct.pack("<q", int(positions.max()))},
        split_offsets=[4],
    )
    return written.data_file(partition, DataFileContent.POSITION_DELETES)


@dataclass(frozen=True)
class NewDeletes:
    """New delete files. `drop`: live delete files that they replace. `rows`: deleted rows that were live until now."""

    files: tuple[NewFile, ...] = ()
    drop: frozenset[FileKey] = frozenset()
    rows: int = 0


def delete_rows(ground: IcebergGround, prefix: str, hits: Sequence[Hit]) -> NewDeletes:
    """Writes the deletes of a commit, in the encoding of the table's version."""
    if not hits:
        return NewDeletes()
    metadata = ground.table.metadata
    folder = data_folder(metadata.location, metadata.properties)
    if table_version(metadata) == 2:
        load = load_entries if _others_deleted(ground) else _load_foreign
        return _DeleteWriter(ground, load).write_positions(folder, prefix, hits)
    return _DeleteWriter(ground).write_vectors(f"{folder}/{prefix}v-{uuid.uuid4().hex[:12]}.puffin", hits)


def may_repeat(ground: IcebergGround) -> Callable[[DataFile], bool]:
    """Returns whether a replaced row may be deleted already. Our rows are replaced once, so only foreign deletes can
    have removed one before. Without foreign commits, existing deletes are not read, however many there are."""
    others_deleted = _others_deleted(ground)
    return lambda file: others_deleted or _is_foreign(file)


def _others_deleted(ground: IcebergGround) -> bool:
    return ground.reconciled.foreign_removed() != 0


def _is_foreign(file: DataFile) -> bool:
    return file.file_format == FileFormat.PUFFIN or not is_ours(file.file_path)


_FOREIGN: Kept[tuple[ManifestEntry, ...]] = Kept(200_000, lambda entries: 1 + len(entries))
"""Foreign delete files per manifest: mostly none of thousands, looked up by every commit."""


def _load_foreign(io: FileIO, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
    found = lambda: tuple(e for e in load_entries(io, manifest) if _is_foreign(e.data_file))  # noqa: E731
    return _FOREIGN.load(manifest_key(manifest), found)


class _DeleteWriter:
    def __init__(
        self,
        ground: IcebergGround,
        load: Callable[[FileIO, ManifestFile], Sequence[ManifestEntry]] = load_entries,
    ) -> None:
        self._io = ground.table.io
        self._manifests = load_manifests(self._io, ground.head)
        self._live = LiveDeletes.load(ground.table.metadata, self._io, self._manifests, load)
        self._filter = DeleteFilter(self._io, ground.table.metadata.schema())
        self._may_repeat = may_repeat(ground)

    def write_positions(self, folder: str, prefix: str, hits: Sequence[Hit]) -> NewDeletes:
        """Merges positional deletes of other engines into a vector, as readers ignore delete files of a data file with
        a vector."""
        live = [self._live.by_position(h.file, h.spec_id) for h in hits]
        vectors = [[d for d in deletes if d.content == "vector"] for deletes in live]
        merged = [Hit(h.file, h.spec_id, self._merge(h, v)) if v else h for h, v in zip(hits, vectors, strict=True)]
        files = tuple(NewFile(spec_id, file) for spec_id, file in write_deletes(self._io, folder, prefix, merged))
        drop = frozenset(file_key(d.file) for entries in vectors for d in entries)
        return NewDeletes(files, drop, self._count(hits, live))

    def write_vectors(self, path: str, hits: Sequence[Hit]) -> NewDeletes:
        live = [self._live.by_position(h.file, h.spec_id) for h in hits]
        merged = [self._merge(h, deletes) for h, deletes in zip(hits, live, strict=True)]
        body, blobs = encode_puffin((h.file.file_path, p) for h, p in zip(hits, merged, strict=True))
        with self._io.new_output(path).create(overwrite=True) as out:
            out.write(body)
        files = tuple(NewFile(h.spec_id, _entry(path, len(body), h, b)) for h, b in zip(hits, blobs, strict=True))
        return NewDeletes(
            files, self._superseded(hits, [d for deletes in live for d in deletes]), self._count(hits, live)
        )

    def _count(self, hits: Sequence[Hit], live: Sequence[Sequence[DeleteEntry]]) -> int:
        return sum(
            int(np.count_nonzero(~self._deleted(h, [d for d in deletes if self._may_repeat(d.file)]).mask(h.positions)))
            for h, deletes in zip(hits, live, strict=True)
        )

    def _deleted(self, hit: Hit, deletes: Sequence[DeleteEntry]) -> OffsetSet:
        parts = [self._filter.positions_in(d, hit.file.file_path) for d in deletes]
        return OffsetSet(np.concatenate(parts)) if parts else OffsetSet()

    def _merge(self, hit: Hit, deletes: Sequence[DeleteEntry]) -> Offsets:
        return OffsetSet.from_sorted(hit.positions).union(self._deleted(hit, deletes)).values

    def _superseded(self, hits: Sequence[Hit], replaced: Sequence[DeleteEntry]) -> frozenset[FileKey]:
        """Returns replaced vectors, and delete files all of whose live data files have a vector now."""
        gone = {file_key(d.file) for d in replaced if d.content == "vector"}
        legacy = {d.file.file_path: file_key(d.file) for d in replaced if d.content == "positions"}
        if legacy:
            without = self._files_without_vector() - {canonical(h.file.file_path) for h in hits}
            gone |= {key for path, key in legacy.items() if without.isdisjoint(self._filter.named_files(path))}
        return frozenset(gone)

    def _files_without_vector(self) -> set[str]:
        data = [m for m in self._manifests if m.content == ManifestContent.DATA]
        files = [(e.data_file, m.partition_spec_id) for m in data for e in load_entries(self._io, m)]
        return {
            canonical(file.file_path)
            for file, spec_id in files
            if all(d.content != "vector" for d in self._live.by_position(file, spec_id))
        }


def _entry(path: str, size: int, hit: Hit, blob: Blob) -> DataFile:
    return DataFile.from_args(
        _table_format_version=LAYOUT,
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PUFFIN,
        partition=hit.file.partition,
        record_count=blob.count,
        file_size_in_bytes=size,
        referenced_data_file=blob.data_file,
        content_offset=blob.offset,
        content_size_in_bytes=blob.length,
    )


@dataclass(frozen=True)
class StaleFiles:
    """Files to rewrite or remove. `rows`: their live rows; deletes by key are not considered."""

    keys: frozenset[FileKey] = frozenset()
    paths: frozenset[str] = frozenset()
    rows: int = 0


def find_stale(
    ground: IcebergGround, table: TableInfo, committed: OffsetMap, offsets: Mapping[Bucket, int]
) -> StaleFiles:
    """`offsets`: offsets that the commit moves."""
    recreated = {b for b in offsets if b.partition and b not in committed}
    if not table.is_pk or not recreated or ground.head is None:
        return StaleFiles()
    if not any(b.partition.startswith(GONE_PARTITION) for b in committed):
        return StaleFiles()
    lake, keys = ground.table, table.descriptor.partition_keys
    deletes = DeleteFilter(lake.io, lake.metadata.schema())
    stale = [p for p in plan_files(lake.metadata, lake.io, ground.head, keys) if p.bucket in recreated]
    rows = sum(p.file.record_count - len(deletes.positions(p.describe())) for p in stale)
    return StaleFiles(frozenset(file_key(p.file) for p in stale), frozenset(p.file.file_path for p in stale), rows)
