# SPDX-License-Identifier: Apache-2.0
"""Data files of a snapshot by bucket and offset bounds. The index of a manifest is computed once and cached."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from lakeward.lake.iceberg.meta.foreign import only_bucket
from lakeward.lake.iceberg.meta.manifests import load_entries, manifest_key
from lakeward.lake.iceberg.meta.partition import bucket_of
from lakeward.lake.iceberg.meta.types import find_bucket_number, with_address
from lakeward.lake.kept import Kept
from lakeward.model import OFFSET, Bucket, Offsets, OffsetSet

_KEPT_FILES = 200_000


@dataclass(frozen=True)
class IndexedFile:
    """A data file. `first` and `last`: bounds of its offsets, None if the file has none."""

    entry: ManifestEntry
    spec_id: int
    bucket: Bucket | None
    first: int | None
    last: int | None

    @property
    def file(self) -> DataFile:
        return self.entry.data_file


@dataclass(frozen=True)
class _BucketFiles:
    """Files of one bucket in one manifest, with their bounds as arrays: a commit needs a few of thousands."""

    files: tuple[IndexedFile, ...]
    firsts: Offsets
    lasts: Offsets

    @classmethod
    def of(cls, files: Iterable[IndexedFile]) -> _BucketFiles:
        files, limits = tuple(files), np.iinfo(np.int64)
        bounds = [(limits.min, limits.max) if f.first is None or f.last is None else (f.first, f.last) for f in files]
        firsts, lasts = np.array(bounds, np.int64).reshape(-1, 2).T
        return cls(files, firsts, lasts)

    def holding(self, offsets: OffsetSet) -> Iterator[IndexedFile]:
        low, high = np.searchsorted(offsets.values, self.firsts), np.searchsorted(offsets.values, self.lasts, "right")
        return (self.files[at] for at in np.flatnonzero(low < high).tolist())


@dataclass(frozen=True)
class ManifestFiles:
    files: tuple[IndexedFile, ...]

    def holding(self, wanted: Mapping[Bucket, OffsetSet]) -> Iterator[IndexedFile]:
        """Returns files whose bounds may include a requested offset of their bucket, and all files without a bucket."""
        for bucket, held in self._by_bucket.items():
            if bucket is None:
                yield from held.files
            elif bucket in wanted:
                yield from held.holding(wanted[bucket])

    @cached_property
    def _by_bucket(self) -> dict[Bucket | None, _BucketFiles]:
        found: dict[Bucket | None, list[IndexedFile]] = defaultdict(list)
        for file in self.files:
            found[file.bucket].append(file)
        return {bucket: _BucketFiles.of(files) for bucket, files in found.items()}


class FileIndex:
    """Indexed files of one table per manifest."""

    def __init__(self, metadata: TableMetadata, partition_keys: tuple[str, ...]) -> None:
        self._schema: Schema = metadata.schema()
        self._specs: dict[int, PartitionSpec] = metadata.specs()
        self._keys = partition_keys
        self._only_bucket = only_bucket(metadata)
        self.offset_id = with_address(self._schema).find_field(OFFSET).field_id

    def files(self, io: FileIO, manifests: Iterable[ManifestFile]) -> Iterator[IndexedFile]:
        for manifest in manifests:
            if manifest.content == ManifestContent.DATA:
                yield from self._of_manifest(io, manifest).files

    def files_holding(
        self, io: FileIO, manifests: Iterable[ManifestFile], wanted: Mapping[Bucket, OffsetSet]
    ) -> Iterator[IndexedFile]:
        """As `holding`, for each manifest."""
        for manifest in manifests:
            if manifest.content == ManifestContent.DATA:
                yield from self._of_manifest(io, manifest).holding(wanted)

    def _of_manifest(self, io: FileIO, manifest: ManifestFile) -> ManifestFiles:
        def index() -> ManifestFiles:
            entries = load_entries(io, manifest)
            return ManifestFiles(tuple(self._indexed(e, manifest.partition_spec_id) for e in entries))

        key = manifest_key(manifest)  # an adopted table's manifests give more buckets
        return _INDEX.load(key if self._only_bucket is None else f"{key}!{self._only_bucket}", index)

    def _indexed(self, entry: ManifestEntry, spec_id: int) -> IndexedFile:
        file = entry.data_file
        number = find_bucket_number(file.lower_bounds)
        number = self._only_bucket if number is None else number
        bucket = bucket_of(self._specs[spec_id], self._schema, file.partition, self._keys, number)
        return IndexedFile(
            entry, spec_id, bucket, _bound(file.lower_bounds, self.offset_id), _bound(file.upper_bounds, self.offset_id)
        )


def _bound(bounds: dict[int, bytes] | None, field_id: int) -> int | None:
    raw = (bounds or {}).get(field_id)
    return None if raw is None or len(raw) != 8 else int(struct.unpack("<q", raw)[0])


_INDEX: Kept[ManifestFiles] = Kept(_KEPT_FILES, lambda kept: len(kept.files))
