# SPDX-License-Identifier: Apache-2.0
"""Columns of a table from the schema of a topic's messages: Avro, Protobuf, Debezium, or values that were seen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lakeward.client.columns import parse_columns
from lakeward.errors import InvalidRequest
from lakeward.model import Column
from lakeward.model import types as mt
from lakeward.source.kafka.decode import ask_registry, file_schema, message_class

METADATA = "_topic string, _partition int, _offset bigint, _timestamp timestamp_ltz(3), _headers map<string, bytes>"
RAW = "key bytes, value bytes"

_AVRO: dict[str, mt.DataType] = {
    "boolean": mt.BooleanType(), "int": mt.Int32Type(), "long": mt.Int64Type(), "float": mt.Float32Type(),
    "double": mt.Float64Type(), "bytes": mt.BytesType(), "string": mt.StringType(), "enum": mt.StringType(),
    "fixed": mt.BytesType(),
}  # fmt: skip
_LOGICAL: dict[str, mt.DataType] = {
    "date": mt.DateType(), "time-millis": mt.TimeType(precision=3), "time-micros": mt.TimeType(precision=6),
    "timestamp-millis": mt.TimestampLtzType(precision=3), "timestamp-micros": mt.TimestampLtzType(precision=6),
    "local-timestamp-millis": mt.TimestampType(precision=3), "local-timestamp-micros": mt.TimestampType(precision=6),
}  # fmt: skip
_CONNECT: dict[str, mt.DataType] = {
    "boolean": mt.BooleanType(), "int8": mt.Int16Type(), "int16": mt.Int16Type(), "int32": mt.Int32Type(),
    "int64": mt.Int64Type(), "float": mt.Float32Type(), "float32": mt.Float32Type(), "double": mt.Float64Type(),
    "float64": mt.Float64Type(), "bytes": mt.BytesType(), "string": mt.StringType(),
}  # fmt: skip
_DEBEZIUM: dict[str, mt.DataType] = {
    "io.debezium.time.Date": mt.DateType(), "io.debezium.time.Timestamp": mt.TimestampType(precision=3),
    "io.debezium.time.MicroTimestamp": mt.TimestampType(precision=6),
    "io.debezium.time.NanoTimestamp": mt.TimestampType(precision=6),
    "io.debezium.time.ZonedTimestamp": mt.TimestampLtzType(precision=6),
}  # fmt: skip


def topic_columns(topic: str, config: Mapping[str, Any], samples: Sequence[bytes]) -> list[Column]:
    """The columns of the table of a topic. Raises `InvalidRequest` where nothing names them."""
    kind, columns = config["format"], config.get("columns")
    if columns:
        made = list(parse_columns(columns))
    elif kind == "raw":
        made = list(parse_columns(RAW))
    elif kind == "avro" or (kind == "debezium" and config.get("schema_registry")):
        made = _avro_columns(_avro_schema(topic, config), is_envelope=kind == "debezium")
    elif kind == "protobuf":
        descriptor = message_class(str(config["schema_file"]), str(config["message"])).DESCRIPTOR
        made = [Column(name=f.name, type=_protobuf_type(f)) for f in descriptor.fields]
    else:
        made = seen_columns(samples, is_envelope=kind == "debezium")
    if not made:
        reason = "there is no message to take columns from; name them with --columns"
        raise InvalidRequest(what=f"topic {topic}", reason=reason)
    key = set(config.get("key") or ())
    if lacks := key - {c.name for c in made}:
        raise InvalidRequest(what=f"--key {lacks.pop()}", reason=f"topic {topic} has {', '.join(c.name for c in made)}")
    made = [Column(name=c.name, type=c.type.with_nullable(c.name not in key)) for c in made]
    return [*made, *(parse_columns(METADATA) if config.get("metadata") else ())]


def _avro_schema(topic: str, config: Mapping[str, Any]) -> Any:
    if config.get("schema_file"):
        return file_schema(str(config["schema_file"]))
    latest = ask_registry(str(config["schema_registry"]), f"/subjects/{topic}-value/versions/latest")
    return json.loads(latest["schema"])


def _avro_columns(schema: Any, *, is_envelope: bool) -> list[Column]:
    if is_envelope:
        after = next(f["type"] for f in schema["fields"] if f["name"] == "after")
        before = next((f["type"] for f in schema["fields"] if f["name"] == "before"), None)
        schema = next(
            t for kind in (after, before) for t in (kind if isinstance(kind, list) else [kind]) if isinstance(t, dict)
        )
    return [Column(name=f["name"], type=_avro_type(f["type"])) for f in schema["fields"]]


def _avro_type(kind: Any) -> mt.DataType:
    if isinstance(kind, list):
        kinds = [part for part in kind if part != "null"]
        if len(kinds) == 1:
            return _avro_type(kinds[0])
        raise InvalidRequest(what="Avro schema", reason=f"a union of {len(kinds)} types has no column type")
    if isinstance(kind, str):
        if kind in _AVRO:
            return _AVRO[kind]
        raise InvalidRequest(what="Avro schema", reason=f"type {kind} is not supported")
    if kind.get("logicalType") == "decimal":
        return mt.DecimalType(precision=int(kind["precision"]), scale=int(kind.get("scale", 0)))
    if kind.get("connect.name") in _DEBEZIUM:
        return _DEBEZIUM[kind["connect.name"]]
    if kind.get("logicalType") in _LOGICAL:
        return _LOGICAL[kind["logicalType"]]
    if kind["type"] == "array":
        return mt.ArrayType(element=_avro_type(kind["items"]))
    if kind["type"] == "map":
        return mt.MapType(key=mt.StringType(nullable=False), value=_avro_type(kind["values"]))
    if kind["type"] == "record":
        return mt.RowType(fields=tuple(mt.RowField(name=f["name"], type=_avro_type(f["type"])) for f in kind["fields"]))
    return _avro_type(kind["type"])


def _protobuf_type(descriptor: Any) -> mt.DataType:
    """As the JSON form of Protobuf has values, so that both agree."""
    if descriptor.message_type is not None and descriptor.message_type.GetOptions().map_entry:
        return mt.MapType(key=mt.StringType(nullable=False), value=_protobuf_type(descriptor.message_type.fields[1]))
    kinds = {1: mt.Float64Type(), 2: mt.Float32Type(), 8: mt.BooleanType(), 9: mt.StringType(), 12: mt.BytesType(),
             14: mt.StringType(), 5: mt.Int32Type(), 15: mt.Int32Type(), 17: mt.Int32Type()}  # fmt: skip
    element: mt.DataType = kinds.get(descriptor.type, mt.Int64Type())
    if descriptor.message_type is not None:
        if descriptor.message_type.full_name == "google.protobuf.Timestamp":
            element = mt.TimestampLtzType(precision=6)
        else:
            fields = tuple(mt.RowField(name=f.name, type=_protobuf_type(f)) for f in descriptor.message_type.fields)
            element = mt.RowType(fields=fields)
    is_repeated = descriptor.is_repeated if hasattr(descriptor, "is_repeated") else descriptor.label == 3
    return mt.ArrayType(element=element) if is_repeated else element


def seen_columns(samples: Sequence[bytes], *, is_envelope: bool) -> list[Column]:
    types: dict[str, mt.DataType] = {}
    for sample in samples:
        try:
            body = json.loads(sample)
        except ValueError:
            continue
        if not isinstance(body, Mapping):
            continue
        if is_envelope:
            declared = _connect_columns(body.get("schema"))
            if declared:
                return declared
            body = (body.get("payload") or body).get("after") or {}
        for name, value in body.items():
            kind = _value_type(value)
            if kind is not None:
                types[name] = _wider(types.get(name), kind)
    return [Column(name=name, type=kind) for name, kind in types.items()]


def _connect_columns(schema: Any) -> list[Column]:
    for part in (schema or {}).get("fields", ()):
        if part.get("field") == "after":
            return [
                Column(name=f["field"], type=_DEBEZIUM.get(f.get("name", ""), _CONNECT.get(f["type"], mt.StringType())))
                for f in part["fields"]
            ]
    return []


def _value_type(value: Any) -> mt.DataType | None:
    if isinstance(value, bool):
        return mt.BooleanType()
    if isinstance(value, int):
        return mt.Int64Type()
    if isinstance(value, float):
        return mt.Float64Type()
    if isinstance(value, str):
        return mt.StringType()
    if isinstance(value, list):
        kinds = [kind for item in value if (kind := _value_type(item)) is not None]
        return mt.ArrayType(element=kinds[0]) if kinds else None
    if isinstance(value, Mapping):
        fields = [mt.RowField(name=n, type=kind) for n, v in value.items() if (kind := _value_type(v)) is not None]
        return mt.RowType(fields=tuple(fields)) if fields else None
    return None


def _wider(before: mt.DataType | None, kind: mt.DataType) -> mt.DataType:
    if before is None or before == kind:
        return kind
    numbers = (mt.Int64Type, mt.Float64Type)
    return mt.Float64Type() if isinstance(before, numbers) and isinstance(kind, numbers) else mt.StringType()
