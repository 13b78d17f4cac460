# SPDX-License-Identifier: Apache-2.0
"""Fluss's description of a table, its JSON, as our `TableInfo`; and the exact types of its log, which may be finer than
the lake's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lakeward.config.kinds import duration
from lakeward.config.options import TABLE_DATALAKE_FRESHNESS
from lakeward.errors import UnsupportedType
from lakeward.hot.fluss.wire.messages import Message
from lakeward.model import (
    FLUSS_PARTITIONS,
    PARTITION_SEPARATOR,
    TYPES,
    BucketFunction,
    Column,
    Schema,
    TableDescriptor,
    TableId,
    TableInfo,
    TablePath,
    row_of,
)
from lakeward.model import types as model

log = logging.getLogger("lakeward.fluss")

FORMAT_PROPERTY = "table.datalake.format"
KV_FORMAT_PROPERTY = "table.kv.format"
VALUE_LAYOUT = "table.kv.value-layout-version"
"""Set by Fluss 1.0 when it makes a table; older tables have none, which is layout 1."""

OWN_BUCKETS = "lakeward.fluss.partition-buckets"
"""Not Fluss's: noted here for those that ask whether a table can be tiered."""

MICROS = 6
"""Fractional digits of the lake's times. Fluss's own job cuts finer ones off too."""

DEFAULT_FRESHNESS_MS = int(TABLE_DATALAKE_FRESHNESS.default.total_seconds() * 1000)

_NESTED = {"ARRAY", "MAP", "ROW"}
_PLAIN = {r.fluss: r for r in TYPES if r.fluss not in _NESTED} | {"INT": row_of(model.Int32Type())}
_warned: set[tuple[str, str]] = set()


def parse_table(path: TablePath, answer: Message, partitions: Mapping[int, str] | None) -> TableInfo:
    """`partitions`: id -> name of those there are now; None for an unpartitioned table. Raises `UnsupportedType`."""
    body = json.loads(bytes(answer["json"]))
    schema = Schema(
        columns=tuple(_coarse(c, path) for c in parse_columns(body["schema"])), schema_id=answer["schema_id"]
    )
    properties = {**body.get("properties", {}), **body.get("custom_properties", {})}
    names = {str(i): n for i, n in sorted((partitions or {}).items())}
    descriptor = TableDescriptor(
        schema=schema,
        primary_key=tuple(body["schema"].get("primary_key", ())),
        partition_keys=tuple(body.get("partition_key", ())),
        bucket_keys=tuple(body.get("bucket_key", ())),
        bucket_count=body["bucket_count"],
        bucket_function=_bucket_function(properties),
        properties={**properties, FLUSS_PARTITIONS: json.dumps(names, separators=(",", ":"))},
        comment=body.get("comment"),
    )
    return TableInfo(
        path=path,
        table_id=TableId(str(answer["table_id"])),
        descriptor=descriptor,
        created_at_ms=answer.get("created", 0),
    )


def freshness_ms(table: TableInfo) -> int:
    """At least 1. Fluss accepts values that Lakeward does not: `0 s`, and nanoseconds."""
    text = table.descriptor.properties.get(TABLE_DATALAKE_FRESHNESS.key)
    try:
        return DEFAULT_FRESHNESS_MS if text is None else max(1, int(duration().parse(text).total_seconds() * 1000))
    except ValueError:
        return DEFAULT_FRESHNESS_MS


def partition_ids(table: TableInfo) -> dict[str, int]:
    """Name -> id, as of when the table was loaded."""
    return {name: int(i) for i, name in json.loads(table.descriptor.properties.get(FLUSS_PARTITIONS, "{}")).items()}


def value_layout(table: TableInfo) -> str:
    return table.descriptor.properties.get(VALUE_LAYOUT, "1")


def parse_partitions(answer: Message, keys: Sequence[str]) -> dict[int, str]:
    """Id -> name: the values in the order of the partition keys."""
    names = {}
    for partition in answer.get("partitions", []):
        values = {v["key"]: v["value"] for v in partition["spec"]["values"]}
        names[partition["partition_id"]] = PARTITION_SEPARATOR.join(values[k] for k in keys)
    return names


def with_own_buckets(table: TableInfo, answer: Message) -> TableInfo:
    """Where a partition has another number of buckets than its table (Fluss 1.0), the first such number is noted."""
    usual = table.descriptor.bucket_count
    for partition in answer.get("partitions", []):
        count = partition.get("bucket_count", usual)
        if count != usual:
            properties = {**table.descriptor.properties, OWN_BUCKETS: str(count)}
            return replace(table, descriptor=replace(table.descriptor, properties=properties))
    return table


def parse_columns(schema: Mapping[str, Any]) -> tuple[Column, ...]:
    """The columns exactly as the log has them."""
    return tuple(
        Column(name=c["name"], type=parse_type(c["data_type"], c["name"]), comment=c.get("comment"))
        for c in schema["columns"]
    )


def parse_type(body: Mapping[str, Any], where: str) -> model.DataType:
    """Raises `UnsupportedType` for a type that this version does not know."""
    name, nullable = body["type"], body.get("nullable", True)
    if name in _PLAIN:
        facts: dict[str, Any] = {key: body[key] for key in _PLAIN[name].parameters if key in body}
        return _PLAIN[name].cls(nullable=nullable, **facts)
    match name:
        case "ARRAY":
            return model.ArrayType(element=parse_type(body["element_type"], f"{where}.element"), nullable=nullable)
        case "MAP":
            key, value = parse_type(body["key_type"], f"{where}.key"), parse_type(body["value_type"], f"{where}.value")
            return model.MapType(key=key, value=value, nullable=nullable)
        case "ROW":
            fields = tuple(_row_field(f, where) for f in body["fields"])
            return model.RowType(fields=fields, nullable=nullable)
    raise UnsupportedType(where=where, type=name, by="Lakeward", reason="this type of Fluss is not known")


def _row_field(body: Mapping[str, Any], where: str) -> model.RowField:
    kind = parse_type(body["field_type"], f"{where}.{body['name']}")
    return model.RowField(name=body["name"], type=kind, comment=body.get("description"))


def _coarse(column: Column, path: TablePath) -> Column:
    """The column as the lake has it; said once where digits are lost."""
    kind = _coarse_type(column.type)
    if kind != column.type and (str(path), column.name) not in _warned:
        _warned.add((str(path), column.name))
        log.warning(
            "%s.%s: %s is finer than a microsecond; the lake keeps microseconds, the rest is cut off",
            path,
            column.name,
            column.type,
        )
    return replace(column, type=kind)


def _coarse_type(kind: model.DataType) -> model.DataType:
    match kind:
        case model.TimeType() | model.TimestampType() | model.TimestampLtzType() if kind.precision > MICROS:
            return replace(kind, precision=MICROS)
        case model.ArrayType():
            return replace(kind, element=_coarse_type(kind.element))
        case model.MapType():
            return replace(kind, key=_coarse_type(kind.key), value=_coarse_type(kind.value))
        case model.RowType():
            return replace(kind, fields=tuple(replace(f, type=_coarse_type(f.type)) for f in kind.fields))
    return kind


def _bucket_function(properties: Mapping[str, str]) -> BucketFunction:
    name = properties.get(FORMAT_PROPERTY, "").lower()
    return BucketFunction(name) if name in set(BucketFunction) else BucketFunction.FLUSS
