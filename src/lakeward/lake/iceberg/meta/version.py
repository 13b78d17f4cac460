# SPDX-License-Identifier: Apache-2.0
"""Format versions: which engines read them, and the parts of version 3 that PyIceberg lacks: its metadata as JSON, and
the upgrade.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.typedef import IcebergBaseModel

from lakeward.config import options
from lakeward.errors import InvalidTable, LakeSchemaBroken
from lakeward.model import BinaryType, DataType, TableDescriptor, TablePath, TimeType, leaves

Version = Literal[2, 3]
VERSIONS: tuple[Version, ...] = (2, 3)


def table_version(metadata: TableMetadata) -> Version:
    """Raises `LakeSchemaBroken` for a version that is not written here."""
    for version in VERSIONS:
        if metadata.format_version == version:
            return version
    diff = f"format version: expected 2 or 3, found {metadata.format_version}"
    raise LakeSchemaBroken(table=metadata.location, diff=diff)


def find_next_row_id(metadata: TableMetadata) -> int | None:
    """Returns the next row id; None before version 3."""
    return metadata.next_row_id or 0 if isinstance(metadata, TableMetadataV3) else None


def to_version_3(metadata: TableMetadata) -> TableMetadata:
    """Upgrades metadata to version 3. Rows get ids with the next commit, whose list numbers every manifest."""
    return TableMetadataV3.model_construct(**{**dict(metadata), "format_version": 3, "next_row_id": 0})


def metadata_json(metadata: TableMetadata) -> str:
    """Adds the parts that PyIceberg lacks: it refuses to write version 3, and its new tables have no `next-row-id`,
    which other readers require."""
    if not isinstance(metadata, TableMetadataV3):
        return metadata.model_dump_json()
    counted = metadata.model_copy(update={"next_row_id": find_next_row_id(metadata)})
    return IcebergBaseModel.model_dump_json(counted)


@dataclass(frozen=True, kw_only=True)
class LakeTableReader:
    """A reader of Iceberg tables. `versions`: those in which it applies our deletes. `reason`: why not in the other
    one. `lacks`: types of columns that it cannot read."""

    versions: tuple[Version, ...] = VERSIONS
    reason: str = ""
    lacks: tuple[type[DataType], ...] = ()


_NO_VERSION_3 = "it reads no tables of version 3"

READERS = {
    "athena": LakeTableReader(versions=(2,), reason=_NO_VERSION_3),
    "bigquery": LakeTableReader(versions=(2,), reason="it reads version 3 in the tables of its own catalog alone"),
    "daft": LakeTableReader(versions=(2,), reason="it reads no deletion vectors"),
    "databricks": LakeTableReader(versions=(3,), reason="it applies no positional delete files"),
    "datafusion": LakeTableReader(),
    "duckdb": LakeTableReader(),
    "emr": LakeTableReader(lacks=(TimeType,)),
    "polars": LakeTableReader(versions=(3,), reason="its own reader ends with a panic at some positional delete files"),
    "pyiceberg": LakeTableReader(),
    "redshift": LakeTableReader(lacks=(TimeType, BinaryType)),
    "snowflake": LakeTableReader(),
    "spark": LakeTableReader(lacks=(TimeType,)),
    "trino": LakeTableReader(versions=(2,), reason=_NO_VERSION_3),
}


def readers_of(descriptor: TableDescriptor) -> tuple[str, ...]:
    option = options.TABLE_DATALAKE_READERS
    names: tuple[str, ...] = option.kind.parse(descriptor.properties.get(option.key, ""))
    return names


def choose_version(path: TablePath, descriptor: TableDescriptor) -> Version:
    """The lowest version that all readers of the table read. Pure. Raises `InvalidTable`."""
    for version in VERSIONS:
        if _find_refusal(path, descriptor, version) is None:
            return version
    reasons = (f"version {version}: {_find_refusal(path, descriptor, version)}" for version in VERSIONS)
    raise _refusal(path, descriptor, "; ".join(reasons))


def check_version(path: TablePath, descriptor: TableDescriptor, version: int) -> None:
    """Pure. Raises `InvalidTable` if a reader of the table cannot read this version."""
    reason = _find_refusal(path, descriptor, version)
    if reason is not None:
        fitting = choose_version(path, descriptor)
        advice = f"all of them read version {fitting} (iceberg.format-version={fitting})"
        raise _refusal(path, descriptor, f"version {version}: {reason}; {advice}")


def _find_refusal(path: TablePath, descriptor: TableDescriptor, version: int) -> str | None:
    for name in readers_of(descriptor):
        reader = READERS.get(name.lower())
        if reader is None:
            raise _refusal(path, descriptor, f"{name} is not one of {', '.join(READERS)}")
        for column in descriptor.schema.columns:
            if any(isinstance(leaf, reader.lacks) for leaf in leaves(column.type)):
                return f"{name} reads no table with a column like {column.name}, {column.type.sql}"
        if version not in reader.versions and (descriptor.is_pk or version > min(VERSIONS)):
            return f"{name} cannot read it, as {reader.reason}"
    return None


def _refusal(path: TablePath, descriptor: TableDescriptor, reason: str) -> InvalidTable:
    value = ", ".join(readers_of(descriptor))
    return InvalidTable(table=str(path), field=options.TABLE_DATALAKE_READERS.key, value=value, reason=reason)
