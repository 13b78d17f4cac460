# SPDX-License-Identifier: Apache-2.0
"""Mapping of a table to Iceberg: columns, spec, sort order and properties. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from pyiceberg import types as ice
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)

from lakeward.errors import InvalidTable, UnsupportedBucketKey
from lakeward.lake.core.columns import check_partition_keys
from lakeward.lake.core.history import new_history
from lakeward.lake.iceberg.meta.types import is_clean, to_iceberg_type, with_defaults
from lakeward.lake.iceberg.meta.version import VERSIONS
from lakeward.model import (
    BUCKET,
    OFFSET,
    TIMESTAMP,
    UNNAMED,
    BucketFunction,
    PartitionKey,
    PartitionUnit,
    TableDescriptor,
    TablePath,
)
from lakeward.spi import is_of_fluss

LAKE_PREFIX = "iceberg."
OTHER_PREFIX = "fluss."
VERSION_KEY = "format-version"
DEFAULTS: Mapping[str, str] = {
    VERSION_KEY: "2",
    "write.format.default": "parquet",
    "write.parquet.compression-codec": "zstd",
    **new_history(prefix=""),
    "history.expire.min-snapshots-to-keep": "1",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
"""Properties of tables that we create; `iceberg.X` of the table overrides them."""

_TIMES: Mapping[PartitionUnit, Transform[Any, Any]] = {
    PartitionUnit.YEAR: YearTransform(),
    PartitionUnit.MONTH: MonthTransform(),
    PartitionUnit.DAY: DayTransform(),
    PartitionUnit.HOUR: HourTransform(),
}

MERGE_ON_READ: Mapping[str, str] = {f"write.{what}.mode": "merge-on-read" for what in ("delete", "update", "merge")}


def lake_schema(descriptor: TableDescriptor, table: str = UNNAMED, *, clean: bool | None = None) -> Schema:
    """Schema of the user's columns, then the system columns, all required. A clean table has no system columns; `clean`
    overrides the table's properties. Raises `UnsupportedType`."""
    nested, ids = itertools.count(10_000), itertools.count(1)
    has_defaults = lake_properties(descriptor)[VERSION_KEY] == str(max(VERSIONS))
    fields = [
        ice.NestedField(
            next(ids),
            c.name,
            to_iceberg_type(c.type, f"{table}.{c.name}", nested),
            required=not c.type.nullable,
            doc=c.comment,
        )
        for c in descriptor.schema.columns
    ]
    if has_defaults:
        pairs = zip(fields, descriptor.schema.columns, strict=True)
        fields = [f if c.default is None else with_defaults(f, c) for f, c in pairs]
    by_name = {f.name: f.field_id for f in fields}
    if not (descriptor.is_clean if clean is None else clean):
        fields += [
            ice.NestedField(next(ids), BUCKET, ice.IntegerType(), required=True),
            ice.NestedField(next(ids), OFFSET, ice.LongType(), required=True),
            ice.NestedField(next(ids), TIMESTAMP, ice.TimestamptzType(), required=True),
        ]
    return Schema(*fields, identifier_field_ids=[by_name[n] for n in descriptor.primary_key])


def has_bucket_transform(descriptor: TableDescriptor) -> bool:
    """Allows nullable bucket keys in tables that Fluss created."""
    keys = descriptor.bucket_keys
    if descriptor.bucket_function is not BucketFunction.ICEBERG or len(keys) != 1:
        return False
    return is_of_fluss(descriptor) or not descriptor.schema.column(keys[0]).type.nullable


def lake_spec(descriptor: TableDescriptor, schema: Schema) -> PartitionSpec:
    """Builds the spec. A clean table without a bucket key has no bucket field."""
    ids = itertools.count(PARTITION_FIELD_ID_START)
    fields = [
        PartitionField(schema.find_field(k.column).field_id, next(ids), _transform(k), _field_name(k, schema))
        for k in descriptor.partitioning
    ]
    if has_bucket_transform(descriptor):
        key = descriptor.bucket_keys[0]
        fields.append(
            PartitionField(
                schema.find_field(key).field_id, next(ids), BucketTransform(descriptor.bucket_count), f"{key}_bucket"
            )
        )
    elif not is_clean(schema):
        fields.append(PartitionField(schema.find_field(BUCKET).field_id, next(ids), IdentityTransform(), BUCKET))
    return PartitionSpec(*fields)


def _transform(key: PartitionKey) -> Transform[Any, Any]:
    return IdentityTransform() if key.unit is None else _TIMES[key.unit]


def _field_name(key: PartitionKey, schema: Schema) -> str:
    """Name of a partition field as Iceberg's own writers choose it; columns must not have the same name."""
    if key.unit is None:
        return key.column
    names, taken = (f"{key.column}_{key.unit}{more}" for more in ("", *range(2, 10_000))), schema.column_names
    return next(name for name in names if name not in taken)


def lake_order(schema: Schema) -> SortOrder:
    if is_clean(schema):
        return UNSORTED_SORT_ORDER
    return SortOrder(SortField(source_id=schema.find_field(OFFSET).field_id, transform=IdentityTransform()))


def lake_key(key: str) -> str:
    """`iceberg.X` -> `X`, any other `K` -> `fluss.K`."""
    return key.removeprefix(LAKE_PREFIX) if key.startswith(LAKE_PREFIX) else OTHER_PREFIX + key


def lake_properties(descriptor: TableDescriptor) -> dict[str, str]:
    mapped = {lake_key(k): v for k, v in descriptor.properties.items()}
    return {**DEFAULTS, **(MERGE_ON_READ if descriptor.is_pk else {}), **mapped}


def check_descriptor(path: TablePath, descriptor: TableDescriptor) -> None:
    """Refuses columns that Iceberg cannot have, before any change."""
    schema = lake_schema(descriptor, str(path))
    check_partition_keys(path, descriptor, by_time=True)
    if has_bucket_transform(descriptor):
        _check_bucket_key(descriptor, schema)
    version = lake_properties(descriptor)[VERSION_KEY]
    if version not in map(str, VERSIONS):
        raise InvalidTable(
            table=str(path), field=f"{LAKE_PREFIX}{VERSION_KEY}", value=version, reason="versions 2 and 3 are written"
        )
    form = lake_properties(descriptor)["write.format.default"]
    if form != "parquet":
        raise InvalidTable(
            table=str(path), field="iceberg.write.format.default", value=form, reason="files are written as parquet"
        )


def _check_bucket_key(descriptor: TableDescriptor, schema: Schema) -> None:
    name = descriptor.bucket_keys[0]
    if not BucketTransform(descriptor.bucket_count).can_transform(schema.find_field(name).field_type):
        kind = descriptor.schema.column(name).type.sql
        raise UnsupportedBucketKey(
            column=name, type=kind, function="iceberg", reason="Iceberg has no bucket transform for it"
        )
