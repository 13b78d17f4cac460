# SPDX-License-Identifier: Apache-2.0
"""Messages in Avro: bare with a schema file, or framed with a schema registry, each by the schema that it names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

from lakeward.errors import InvalidRequest
from lakeward.model import Column
from lakeward.model import types as mt
from lakeward.source.kafka.decode import FramedDecoder
from lakeward.source.kafka.registry import RegisteredSchema, open_registry, schema_id, topic_schema
from lakeward.source.kafka.semantic import SEMANTIC

_TYPES: dict[str, mt.DataType] = {
    "boolean": mt.BooleanType(), "int": mt.Int32Type(), "long": mt.Int64Type(), "float": mt.Float32Type(),
    "double": mt.Float64Type(), "bytes": mt.BytesType(), "string": mt.StringType(), "enum": mt.StringType(),
    "fixed": mt.BytesType(),
}  # fmt: skip
_LOGICAL: dict[str, mt.DataType] = {
    "date": mt.DateType(), "time-millis": mt.TimeType(precision=3), "time-micros": mt.TimeType(precision=6),
    "timestamp-millis": mt.TimestampLtzType(precision=3), "timestamp-micros": mt.TimestampLtzType(precision=6),
    "local-timestamp-millis": mt.TimestampType(precision=3), "local-timestamp-micros": mt.TimestampType(precision=6),
}  # fmt: skip


class AvroDecoder(FramedDecoder):
    """A message of an older schema has NULL in the columns that its schema lacks."""

    @classmethod
    def topic_columns(cls, topic: str, config: Mapping[str, Any], samples: Sequence[bytes]) -> list[Column]:
        registry = open_registry(config)
        if registry is None or config.get("schema_file"):
            return cls.columns_of(_file_schema(str(config["schema_file"])))
        return cls.columns_of(topic_schema(registry, topic, list(samples)))

    @classmethod
    def columns_of(cls, schema: RegisteredSchema) -> list[Column]:
        """Raises `InvalidRequest` for types that no column has, `ValueError` for a schema of another kind."""
        return [Column(name=f["name"], type=_type(f["type"])) for f in cls.row_record(expand_avro(schema))["fields"]]

    @classmethod
    def row_record(cls, schema: Any) -> Any:
        """The record whose fields are the table's columns."""
        return record_of(schema)

    def columns_in(self, value: bytes) -> list[Column]:
        return self.columns_of(self.schema_of(value)[0])

    def read(self, value: bytes) -> Any:
        import fastavro

        schema, at = self.schema_of(value)
        body: Any = fastavro.schemaless_reader(BytesIO(value[at:]), parse_avro(schema), None)
        return _without_uuids(body) if isinstance(body, Mapping) else body

    def schema_of(self, value: bytes) -> tuple[RegisteredSchema, int]:
        """The schema of a message, and where its body begins. Raises `ValueError`."""
        if self.registry is None or self.config.get("schema_file"):
            return _file_schema(str(self.config["schema_file"])), 0
        return self.registry.schema(schema_id(value)), 5


@lru_cache(1000)
def parse_avro(schema: RegisteredSchema) -> Any:
    """For reading. Raises `ValueError` for a schema of another kind."""
    return _parse(schema, {}, expand=False)


@lru_cache(1000)
def expand_avro(schema: RegisteredSchema) -> Any:
    """With definitions in place of names, for looking at types. Raises as `parse_avro` does."""
    return _parse(schema, {}, expand=True)


def _parse(schema: RegisteredSchema, named: dict[str, Any], *, expand: bool) -> Any:
    import fastavro

    if schema.kind != "AVRO":
        raise ValueError(f"its schema is of kind {schema.kind}, not AVRO")
    for _, used in schema.references:
        _parse(used, named, expand=False)
    try:
        return fastavro.parse_schema(json.loads(schema.text), named_schemas=named, expand=expand)
    except fastavro.schema.SchemaParseException as error:
        raise ValueError(str(error)) from error


@lru_cache(10)
def _file_schema(path: str) -> RegisteredSchema:
    """Raises `InvalidRequest`."""
    try:
        schema = RegisteredSchema(Path(path).read_text(), "AVRO")
        parse_avro(schema)
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidRequest(what=f"--schema-file {path}", reason=str(error)) from error
    return schema


def record_of(schema: Any) -> Any:
    """The record of a schema: itself, or the one of a union with null. Raises `InvalidRequest`."""
    for kind in schema if isinstance(schema, list) else [schema]:
        if isinstance(kind, Mapping) and kind.get("type") == "record":
            return kind
    raise InvalidRequest(what="Avro schema", reason="it is not a record, so it names no columns")


def _type(kind: Any) -> mt.DataType:
    if isinstance(kind, list):
        kinds = [part for part in kind if part != "null"]
        if len(kinds) == 1:
            return _type(kinds[0])
        raise InvalidRequest(what="Avro schema", reason=f"a union of {len(kinds)} types has no column type")
    if isinstance(kind, str):
        if kind in _TYPES:
            return _TYPES[kind]
        raise InvalidRequest(what="Avro schema", reason=f"type {kind} is not supported")
    if kind.get("logicalType") == "decimal":
        return mt.DecimalType(precision=int(kind["precision"]), scale=int(kind.get("scale", 0)))
    if kind.get("logicalType") in _LOGICAL:
        return _LOGICAL[kind["logicalType"]]
    if kind.get("connect.name") in SEMANTIC:
        return SEMANTIC[kind["connect.name"]].column_type(kind.get("connect.parameters") or {})
    if kind["type"] == "array":
        return mt.ArrayType(element=_type(kind["items"]))
    if kind["type"] == "map":
        return mt.MapType(key=mt.StringType(nullable=False), value=_type(kind["values"]))
    if kind["type"] == "record":
        return mt.RowType(fields=tuple(mt.RowField(name=f["name"], type=_type(f["type"])) for f in kind["fields"]))
    return _type(kind["type"])


def _without_uuids(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: str(cell) if isinstance(cell, UUID) else cell for name, cell in body.items()}
