# SPDX-License-Identifier: Apache-2.0
"""Buckets and Iceberg's partition tuples: from a split's bucket to the tuple of its files, and back from a file to its
bucket.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, TimeTransform
from pyiceberg.typedef import Record

from lakeward.errors import InvalidRequest, InvalidTable
from lakeward.model import BUCKET, PARTITION_SEPARATOR, Bucket, PartitionKey, PartitionUnit, partition_values

_EPOCH = datetime.date(1970, 1, 1)


def partition_record(spec: PartitionSpec, schema: Schema, bucket: Bucket) -> Record:
    """The partition tuple of a split's files: the partition's values, then the bucket's number if the spec has it."""
    values = partition_values(bucket.partition)
    last = [bucket.number] if _bucket_field(spec, schema) is not None else []
    keys = len(spec.fields) - len(last)
    if len(values) != keys:
        raise InvalidRequest(what=f"bucket {bucket}", reason=f"the lake table has {keys} partition keys")
    typed = [_parse(schema, f, v) for f, v in zip(spec.fields, values, strict=False)]
    return Record(*typed, *last)


def unit_of(field: PartitionField) -> PartitionUnit | None:
    """Returns the number of a time partition, counted from 1970 like ours."""
    match field.transform:
        case TimeTransform():
            return PartitionUnit(str(field.transform))
    return None


def _number(value: Any) -> int:
    """Returns a number: a day is a date in Iceberg's types, and some manifests are read that way."""
    return (value - _EPOCH).days if isinstance(value, datetime.date) else int(value)


def _parse(schema: Schema, field: PartitionField, text: str) -> Any:
    unit = unit_of(field)
    return parse_value(schema.find_field(field.source_id).field_type, text) if unit is None else unit.number(text)


def parse_value(kind: ice.IcebergType, text: str) -> Any:
    """Parses a partition value to Iceberg's form (a date is days since 1970)."""
    try:
        match kind:
            case ice.BooleanType():
                return {"true": True, "false": False}[text.lower()]
            case ice.IntegerType() | ice.LongType():
                return int(text)
            case ice.DateType():
                return (datetime.date.fromisoformat(text) - _EPOCH).days
            case ice.StringType():
                return text
    except (ValueError, KeyError) as error:
        raise InvalidRequest(what=f"partition value {text!r}", reason=f"it is not a {kind}") from error
    raise InvalidRequest(what=f"partition value {text!r}", reason=f"{kind} cannot be a partition key")


def value_text(kind: ice.IcebergType, value: Any) -> str:
    """The inverse of `parse_value`."""
    match kind:
        case ice.BooleanType():
            return "true" if value else "false"
        case ice.DateType():
            return (_EPOCH + datetime.timedelta(days=value)).isoformat() if isinstance(value, int) else str(value)
    return str(value)


def partition_texts(spec: PartitionSpec, schema: Schema, record: Record) -> dict[str, str]:
    """Spells a file's tuple by partition key (`region`, `day(ts)`), without the bucket's number."""
    texts: dict[str, str] = {}
    for at, field in enumerate(spec.fields):
        source, unit = _source(schema, field), unit_of(field)
        if source is None or source.name == BUCKET or record[at] is None:
            continue
        if unit is not None:
            texts[str(PartitionKey(source.name, unit))] = unit.text(_number(record[at]))
        elif isinstance(field.transform, IdentityTransform):
            texts[source.name] = value_text(source.field_type, record[at])
    return texts


def bucket_of(
    spec: PartitionSpec, schema: Schema, record: Record, partition_keys: tuple[str, ...], named: int | None = None
) -> Bucket | None:
    """Returns a file's bucket; None if its spec does not have it (another engine wrote it under another spec). `named`:
    its number from another source, if the spec has no field for it."""
    at = _bucket_field(spec, schema)
    number: int | None = named if at is None else record[at]
    texts: Mapping[str, str] = partition_texts(spec, schema, record)
    if number is None or any(k not in texts for k in partition_keys):
        return None
    return Bucket(PARTITION_SEPARATOR.join(texts[k] for k in partition_keys), number)


def _bucket_field(spec: PartitionSpec, schema: Schema) -> int | None:
    """Returns the index of the bucket's number in the tuple."""
    for at, field in enumerate(spec.fields):
        source = _source(schema, field)
        is_named = source is not None and source.name == BUCKET
        if (is_named and isinstance(field.transform, IdentityTransform)) or isinstance(
            field.transform, BucketTransform
        ):
            return at
    return None


def check_times(table: str, spec: PartitionSpec, schema: Schema, file: DataFile) -> None:
    """Raises `InvalidTable` if a file's values are of another time than its partition: Iceberg up to 0.10.0 put times
    before 1970 one too late."""
    for at, field in enumerate(spec.fields):
        unit, source, number = unit_of(field), _source(schema, field), file.partition[at]
        if unit is None or source is None or number is None:
            continue
        kind = pa.date32() if isinstance(source.field_type, ice.DateType) else pa.timestamp("us")
        bounds = [(b or {}).get(field.source_id) for b in (file.lower_bounds, file.upper_bounds)]
        ends = pa.array([int.from_bytes(raw, "little", signed=True) for raw in bounds if raw is not None], kind)
        if any(n != _number(number) for n in unit.numbers(ends).tolist()):
            reason = f"its {source.name} is not of its partition {unit.text(_number(number))}; rewrite the file first"
            raise InvalidTable(table=table, field="data file", value=file.file_path, reason=reason)


def _source(schema: Schema, field: PartitionField) -> ice.NestedField | None:
    """None: the column was dropped after the table's partitioning changed."""
    return schema.find_field(field.source_id) if schema.find_column_name(field.source_id) is not None else None
