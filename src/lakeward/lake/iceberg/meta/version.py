# SPDX-License-Identifier: Apache-2.0
"""A table's format version, and what PyIceberg leaves out of version 3: its metadata as JSON, and the move to it."""

from __future__ import annotations

from typing import Literal

from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.typedef import IcebergBaseModel

from lakeward.errors import LakeSchemaBroken

Version = Literal[2, 3]
VERSIONS: tuple[Version, ...] = (2, 3)


def table_version(metadata: TableMetadata) -> Version:
    """Raises `LakeSchemaBroken` for one that we do not write."""
    for version in VERSIONS:
        if metadata.format_version == version:
            return version
    diff = f"format version: expected 2 or 3, found {metadata.format_version}"
    raise LakeSchemaBroken(table=metadata.location, diff=diff)


def find_next_row_id(metadata: TableMetadata) -> int | None:
    """None before version 3, which counts rows."""
    return metadata.next_row_id or 0 if isinstance(metadata, TableMetadataV3) else None


def to_version_3(metadata: TableMetadata) -> TableMetadata:
    """The same table in version 3. Its rows get ids with the next commit, whose list numbers every manifest."""
    return TableMetadataV3.model_construct(**{**dict(metadata), "format_version": 3, "next_row_id": 0})


def metadata_json(metadata: TableMetadata) -> str:
    """PyIceberg refuses to write version 3 and makes new tables of it without a `next-row-id`, which others demand."""
    if not isinstance(metadata, TableMetadataV3):
        return metadata.model_dump_json()
    counted = metadata.model_copy(update={"next_row_id": find_next_row_id(metadata)})
    return IcebergBaseModel.model_dump_json(counted)
