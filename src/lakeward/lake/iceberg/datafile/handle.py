# SPDX-License-Identifier: Apache-2.0
"""What a round's writers need to know of the lake table, as versioned bytes: no catalog call in an executor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER_ID

from lakeward.lake.iceberg.meta.connection import storage_properties
from lakeward.lake.iceberg.meta.layout import is_clean
from lakeward.lake.iceberg.meta.location import data_folder
from lakeward.lake.iceberg.meta.ownpaths import check_path
from lakeward.protocol.packed import Packed


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
    """Rows of a clean table come as they were written, whatever order its owner wants."""
    return UNSORTED_SORT_ORDER_ID if is_clean(metadata.schema()) else metadata.default_sort_order_id
