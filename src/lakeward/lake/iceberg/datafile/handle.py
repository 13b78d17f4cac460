# SPDX-License-Identifier: Apache-2.0
"""What a round's writers need to know of the lake table, as versioned bytes: no catalog call in an executor."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from lakeward.lake.iceberg.datafile.location import data_folder
from lakeward.lake.iceberg.meta.connection import storage_properties
from lakeward.model.versioned import pack, unpack

_KIND, _VERSION = "iceberg-handle", 1


@dataclass(frozen=True, kw_only=True)
class WriteHandle:
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
            sort_order_id=metadata.default_sort_order_id,
            folder=data_folder(metadata.location, metadata.properties),
            properties={k: v for k, v in metadata.properties.items() if k.startswith("write.")},
            storage=storage_properties(table.io.properties),
            version=metadata.format_version,
        )

    def to_bytes(self) -> bytes:
        body = {
            "schema": self.schema.model_dump_json(),
            "spec": self.spec.model_dump_json(),
            "sort_order_id": self.sort_order_id,
            "folder": self.folder,
            "properties": self.properties,
            "storage": self.storage,
            "version": self.version,
        }
        return pack(_KIND, _VERSION, body)

    @classmethod
    def from_bytes(cls, data: bytes) -> WriteHandle:
        _, body, _ = unpack(_KIND, _VERSION, data)
        return cls(
            schema=Schema.model_validate_json(body["schema"]),
            spec=PartitionSpec.model_validate_json(body["spec"]),
            sort_order_id=body["sort_order_id"],
            folder=body["folder"],
            properties=body["properties"],
            storage=body["storage"],
            version=body.get("version", 2),
        )
