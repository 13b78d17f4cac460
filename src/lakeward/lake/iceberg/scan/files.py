# SPDX-License-Identifier: Apache-2.0
"""Data files of a snapshot by bucket and offset bounds. What a manifest says is worked out once and kept."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from lakeward.lake.iceberg.meta.foreign import only_bucket
from lakeward.lake.iceberg.meta.layout import find_bucket_number, with_address
from lakeward.lake.iceberg.meta.manifests import load_entries, manifest_key
from lakeward.lake.iceberg.meta.partition import bucket_of
from lakeward.lake.iceberg.scan.kept import Kept
from lakeward.model.bucket import Bucket
from lakeward.model.schema import OFFSET

_KEPT_FILES = 200_000


@dataclass(frozen=True)
class IndexedFile:
    """`first` and `last` bound its offsets, None where the file carries no bounds."""

    entry: ManifestEntry
    spec_id: int
    bucket: Bucket | None
    first: int | None
    last: int | None

    @property
    def file(self) -> DataFile:
        return self.entry.data_file

    def may_hold(self, first: int, last: int) -> bool:
        return self.first is None or self.last is None or (self.first <= last and first <= self.last)


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
                yield from self.of_manifest(io, manifest)

    def of_manifest(self, io: FileIO, manifest: ManifestFile) -> tuple[IndexedFile, ...]:
        def index() -> tuple[IndexedFile, ...]:
            return tuple(self._indexed(e, manifest.partition_spec_id) for e in load_entries(io, manifest))

        key = manifest_key(manifest)  # what it tells of buckets is more once the table was adopted
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


_INDEX: Kept[tuple[IndexedFile, ...]] = Kept(_KEPT_FILES, len)
