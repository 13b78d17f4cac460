# SPDX-License-Identifier: Apache-2.0
"""Results of executors as versioned bytes: the files of a split with their statistics and offsets, and the new files of
a rewritten group.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER_ID
from pyiceberg.typedef import Record

from lakeward.lake.core.rewrite import RankTable
from lakeward.lake.iceberg.connect.connection import storage_properties
from lakeward.lake.iceberg.datafile.offsetcache import decode_offsets
from lakeward.lake.iceberg.meta.location import data_folder
from lakeward.lake.iceberg.meta.manifests import LAYOUT
from lakeward.lake.iceberg.meta.ownpaths import check_path
from lakeward.lake.iceberg.meta.types import is_clean
from lakeward.model import Bucket, OffsetSet
from lakeward.protocol.codec import Packed

Counts = dict[int, int]
Bounds = dict[int, bytes]


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """A written file. `offsets`: its encoded offset set, for PK tables; empty for log tables, whose rows are never
    replaced."""

    path: str
    record_count: int
    size_bytes: int
    first_offset: int
    last_offset: int
    column_sizes: Counts = field(default_factory=dict)
    value_counts: Counts = field(default_factory=dict)
    null_value_counts: Counts = field(default_factory=dict)
    nan_value_counts: Counts = field(default_factory=dict)
    lower_bounds: Bounds = field(default_factory=dict)
    upper_bounds: Bounds = field(default_factory=dict)
    split_offsets: list[int] = field(default_factory=list)
    sort_order_id: int | None = None
    offsets: bytes = b""

    def data_file(
        self, partition: Record, content: DataFileContent = DataFileContent.DATA, equality_ids: list[int] | None = None
    ) -> DataFile:
        return DataFile.from_args(
            _table_format_version=LAYOUT,
            content=content,
            file_path=self.path,
            file_format=FileFormat.PARQUET,
            partition=partition,
            record_count=self.record_count,
            file_size_in_bytes=self.size_bytes,
            column_sizes=self.column_sizes,
            value_counts=self.value_counts,
            null_value_counts=self.null_value_counts,
            nan_value_counts=self.nan_value_counts,
            lower_bounds=self.lower_bounds,
            upper_bounds=self.upper_bounds,
            key_metadata=None,
            split_offsets=self.split_offsets,
            equality_ids=equality_ids,
            sort_order_id=self.sort_order_id,
        )

    def offset_set(self) -> OffsetSet:
        return decode_offsets(self.offsets)


@dataclass(frozen=True, kw_only=True)
class WriteResult(Packed):
    """Files of one split. `keys`: key files whose rows in earlier commits, and in earlier results of the same round,
    are deleted."""

    packed_as: ClassVar = ("iceberg-result", 2)

    bucket: Bucket
    schema_id: int
    files: tuple[WrittenFile, ...]
    keys: tuple[WrittenFile, ...] = ()


@dataclass(frozen=True)
class RewrittenGroup(Packed):
    """Files of a rewritten group. `result` None: no row of the group was live."""

    packed_as: ClassVar = ("iceberg-rewrite", 2)

    result: WriteResult | None
    ranks: tuple[RankTable, ...]


@dataclass(frozen=True, kw_only=True)
class WriteHandle(Packed):
    packed_as: ClassVar = ("iceberg-handle", 2)

    schema: Schema
    spec: PartitionSpec
    sort_order_id: int
    folder: str
    properties: dict[str, str]
    storage: dict[str, str]
    version: int = 2
    """The table's format version."""

    @classmethod
    def of(cls, table: Table) -> WriteHandle:
        metadata = table.metadata
        return cls(
            schema=metadata.schema(),
            spec=metadata.spec(),
            sort_order_id=_order_of(metadata),
            folder=check_path(table.io, data_folder(metadata.location, metadata.properties)),
            properties={k: v for k, v in metadata.properties.items() if k.startswith("write.")},
            storage=storage_properties(table.io.properties),
            version=metadata.format_version,
        )


def _order_of(metadata: TableMetadata) -> int:
    """Rows of a clean table stay in the order in which they were written, whatever sort order its owner set."""
    return UNSORTED_SORT_ORDER_ID if is_clean(metadata.schema()) else metadata.default_sort_order_id
