# SPDX-License-Identifier: Apache-2.0
"""Describes a foreign table as one of our tables: its columns, keys and partitioning, or the reason why it cannot be
adopted. Pure.

It keeps its layout: no system columns are added (a clean table), no file is changed. A property of the lake table
records the rows that existed: they never had an address in our log.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema as LakeSchema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import BucketTransform, IdentityTransform

from lakeward.errors import InvalidTable, LakeTampered, UnsupportedType
from lakeward.lake.iceberg.meta.partition import unit_of
from lakeward.lake.iceberg.meta.types import PRIMITIVES, find_default, spell_type
from lakeward.lake.iceberg.meta.version import VERSIONS
from lakeward.model import Column, PartitionKey, Schema, SnapshotId, TableDescriptor, TablePath, plain_types
from lakeward.model import types as model
from lakeward.spi import AdoptedRows

ADOPTED = "lakeward.adopted"
ADOPTED_TAG = "lakeward-adopted"
"""Tag of the last snapshot before a table was adopted."""

NAME_MAPPING = "schema.name-mapping.default"

_FROM_ICEBERG = {type(PRIMITIVES[word]): kind for word, kind in plain_types("iceberg").items()} | {
    ice.TimeType: model.TimeType(precision=6)
}


def describe_foreign(
    path: TablePath, metadata: TableMetadata, bucket_count: int = 1, primary_key: Sequence[str] = ()
) -> TableDescriptor:
    """Raises `InvalidTable`, `UnsupportedType` with the reason why it cannot be adopted."""
    if int(metadata.format_version) not in VERSIONS:
        raise _refused(
            path, "format version", metadata.format_version, "versions 2 and 3 are written; upgrade it first"
        )
    schema = metadata.schema()
    for field in schema.fields:
        _check_field(path, field)
        _check_history(path, field, metadata.schemas)
    for spec in metadata.specs().values():
        _check_buckets(path, spec)
    partition_keys = _partition_keys(path, metadata.spec(), schema)
    if primary_key:
        _check_key(path, schema, primary_key, partition_keys)
    required = {f.name for f in schema.fields if f.required or f.name in primary_key}
    columns = tuple(
        Column(
            name=f.name,
            type=to_model_type(f.field_type, f"{path}.{f.name}", f.name in required),
            comment=f.doc,
            default=find_default(f),
        )
        for f in schema.fields
    )
    return TableDescriptor(
        schema=Schema(columns=columns),
        primary_key=tuple(primary_key),
        partition_keys=partition_keys,
        bucket_count=bucket_count,
    )


def find_adopted(table: str, metadata: TableMetadata) -> AdoptedRows | None:
    """Raises `LakeTampered`."""
    text = metadata.properties.get(ADOPTED)
    if text is None:
        return None
    try:
        facts = json.loads(text)
        at = None if facts["snapshot"] is None else SnapshotId(str(facts["snapshot"]))
        buckets = facts.get("buckets")
        return AdoptedRows(
            snapshot_id=at,
            sequence=int(facts["sequence"]),
            rows=int(facts["rows"]),
            buckets=None if buckets is None else int(buckets),
        )
    except (ValueError, KeyError, TypeError) as error:
        head = str(metadata.current_snapshot_id)
        raise LakeTampered(table=table, snapshot=head, what=ADOPTED, reason=f"{text!r} cannot be read") from error


def spell_adopted(rows: AdoptedRows) -> dict[str, str]:
    known = {"snapshot": rows.snapshot_id, "sequence": rows.sequence, "rows": rows.rows}
    return {ADOPTED: json.dumps(known if rows.buckets is None else {**known, "buckets": rows.buckets})}


def only_bucket(metadata: TableMetadata) -> int | None:
    """The bucket of files that do not record it, in a PK table that was adopted with one."""
    if ADOPTED not in metadata.properties:
        return None
    try:
        adopted = find_adopted("", metadata)
    except LakeTampered:
        return None  # readers of the table report it
    return 0 if adopted is not None and adopted.buckets == 1 else None


def to_model_type(kind: ice.IcebergType, where: str, required: bool = False) -> model.DataType:
    found = _nested(kind, where) or _FROM_ICEBERG.get(type(kind))
    if found is None:
        raise UnsupportedType(where=where, type=str(kind), by="Lakeward", reason="no column type matches it")
    return found.with_nullable(not required)


def _nested(kind: ice.IcebergType, where: str) -> model.DataType | None:
    match kind:
        case ice.DecimalType():
            return model.DecimalType(precision=kind.precision, scale=kind.scale)
        case ice.ListType():
            return model.ArrayType(element=to_model_type(kind.element_type, f"{where}.element", kind.element_required))
        case ice.MapType():
            key = to_model_type(kind.key_type, f"{where}.key", required=True)
            return model.MapType(key=key, value=to_model_type(kind.value_type, f"{where}.value", kind.value_required))
        case ice.StructType():
            return model.RowType(
                fields=tuple(
                    model.RowField(
                        name=f.name, type=to_model_type(f.field_type, f"{where}.{f.name}", f.required), comment=f.doc
                    )
                    for f in kind.fields
                )
            )
    return None


def _check_key(path: TablePath, schema: LakeSchema, primary_key: Sequence[str], partition_keys: Sequence[str]) -> None:
    names, spelled = {f.name for f in schema.fields}, ", ".join(primary_key)
    if missing := [k for k in primary_key if k not in names]:
        reason = f"no such column; there are {', '.join(f.name for f in schema.fields)}"
        raise _refused(path, "primary key", ", ".join(missing), reason)
    columns = [PartitionKey.parse(k, names).column for k in partition_keys]
    if outside := [k for k in columns if k not in primary_key]:
        reason = (
            f"it is partitioned by {', '.join(outside)}: a row that changed its partition would keep its key, so "
            f"partition columns are part of the key; add them to --key, or remove the partition field there"
        )
        raise _refused(path, "primary key", spelled, reason)
    if (identifier := schema.identifier_field_names()) and identifier != set(primary_key):
        reason = (
            f"the table's own identifier fields are {', '.join(sorted(identifier))}; name those, or drop them there"
        )
        raise _refused(path, "primary key", spelled, reason)


def _check_field(path: TablePath, field: ice.NestedField) -> None:
    if field.initial_default is not None:
        reason = "rows from before the column have a default value, which is not read here; write it into them first"
        raise _refused(path, "column", field.name, reason)


def _check_history(path: TablePath, field: ice.NestedField, schemas: Sequence[LakeSchema]) -> None:
    """Checks older files: columns are matched by id, nested fields by name."""
    if field.field_type.is_primitive:
        return
    before = [f for schema in schemas for f in schema.fields if f.field_id == field.field_id]
    if any(spell_type(f.field_type) != spell_type(field.field_type) for f in before):
        reason = "its inner fields changed, and files from before are not read by them; rewrite the column first"
        raise _refused(path, "column", field.name, reason)


def _check_buckets(path: TablePath, spec: PartitionSpec) -> None:
    for field in spec.fields:
        if isinstance(field.transform, BucketTransform):
            reason = "files partitioned so would be taken for buckets of ours; partition it by value, or not at all"
            raise _refused(path, "partitioning", f"{field.name} ({field.transform})", reason)


def _partition_keys(path: TablePath, spec: PartitionSpec, schema: LakeSchema) -> tuple[str, ...]:
    keys = []
    for field in spec.fields:
        unit = unit_of(field)
        if unit is None and not isinstance(field.transform, IdentityTransform):
            reason = (
                "partitions of ours are by value (identity) or by year, month, day or hour; remove the field, files "
                "that are there stay as they are"
            )
            raise _refused(path, "partitioning", f"{field.name} ({field.transform})", reason)
        keys.append(str(PartitionKey(schema.find_field(field.source_id).name, unit)))
    return tuple(keys)


def _refused(path: TablePath, field: str, value: object, reason: str) -> InvalidTable:
    return InvalidTable(table=str(path), field=field, value=str(value), reason=reason)
