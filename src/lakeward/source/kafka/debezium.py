# SPDX-License-Identifier: Apache-2.0
"""Debezium's envelopes: in JSON with or without their schema, or in Avro with a schema registry."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from lakeward.errors import InvalidRequest
from lakeward.model import Column
from lakeward.model import types as mt
from lakeward.source.changes import UNSET
from lakeward.source.kafka.avro import AvroDecoder, expand_avro, record_of
from lakeward.source.kafka.decode import (
    DECODE_ERRORS,
    BadMessage,
    ColumnError,
    Decoded,
    find_object,
    read_object,
    seen_columns,
)
from lakeward.source.kafka.registry import RegisteredSchema
from lakeward.source.kafka.semantic import Parameters, connect_type, convert_semantic, read_bytes

_UNAVAILABLE = "__debezium_unavailable_value"
UNAVAILABLE = (_UNAVAILABLE, _UNAVAILABLE.encode(), base64.b64encode(_UNAVAILABLE.encode()).decode(), [_UNAVAILABLE])
"""Debezium's placeholder for a TOAST value that did not change: in text, in bytes of Avro and of JSON, in arrays."""

Kinds = Mapping[str, tuple[str, Parameters]]
"""Column -> name and parameters of its semantic type."""


class DebeziumDecoder(AvroDecoder):
    @classmethod
    def topic_columns(cls, topic: str, config: Mapping[str, Any], samples: Sequence[bytes]) -> list[Column]:
        if config.get("schema_registry"):
            return super().topic_columns(topic, config, samples)
        return _json_columns(samples)

    @classmethod
    def row_record(cls, schema: Any) -> Any:
        """The record of `after`: the first of both fields declares it, the other may name it."""
        for name in ("after", "before"):
            for field in record_of(schema)["fields"]:
                if field["name"] == name:
                    return record_of(field["type"])
        raise InvalidRequest(what="Avro schema", reason="it is no envelope of Debezium: it has no field `after`")

    def message_columns(self, values: Sequence[bytes]) -> list[Column]:
        return _json_columns(values) if self.registry is None else super().message_columns(values)

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Decoded:
        result = Decoded([], [])
        for place, value in enumerate(values):
            if value is None:
                continue  # the tombstone behind a delete
            try:
                self._take(place, keys[place], value, result)
            except ColumnError as error:
                result.bad.append(BadMessage(place, error.column, error.reason))
            except DECODE_ERRORS as error:
                result.bad.append(BadMessage(place, "", f"it is no envelope: {str(error)[:200]}"))
        return result

    def _take(self, place: int, key: bytes | None, value: bytes, result: Decoded) -> None:
        envelope, kinds = self._envelope(value)
        op = envelope["op"]
        if op in ("c", "r", "u"):
            unset = [name for name, cell in envelope["after"].items() if cell in UNAVAILABLE]
            row = self._cells({n: cell for n, cell in envelope["after"].items() if n not in unset}, kinds)
            row.update(dict.fromkeys(unset, UNSET))
            result.is_partial = result.is_partial or bool(unset)
            result.rows.append(row)
            result.places.append(place)
        elif op == "d":
            before = envelope.get("before") or {}
            if all(name in before for name in self.key):
                result.deletes[place] = self._cells({name: before[name] for name in self.key}, kinds)
            else:
                result.deletes[place] = self.tombstone(key)
        elif op == "t":
            result.truncates.append(place)
        elif op != "m":
            raise ValueError(f"op {op!r}")

    def _envelope(self, value: bytes) -> tuple[Mapping[str, Any], Kinds]:
        if self.registry is not None:
            return self.read(value), _avro_kinds(self.schema_of(value)[0])
        body = read_object(value)
        schema = body.get("schema")
        envelope = body["payload"] if isinstance(schema, Mapping) or "payload" in body else body
        return envelope, _json_kinds(json.dumps(schema)) if isinstance(schema, Mapping) else {}

    def _cells(self, cells: Mapping[str, Any], kinds: Kinds) -> dict[str, Any]:
        """Raises `ColumnError`."""
        row = {}
        binary = {c.name for c in self.columns if isinstance(c.type, mt.BytesType | mt.BinaryType)}
        for name, cell in cells.items():
            try:
                row[name] = convert_semantic(cell, *kinds.get(name, ("", {})))
                if name in binary and cell is not None:
                    row[name] = read_bytes(cell)
            except DECODE_ERRORS as error:
                raise ColumnError(name, str(error)) from error
        return self.convert(row)


def _json_columns(values: Sequence[bytes]) -> list[Column]:
    """Columns from the envelopes' schema, or from their values."""
    bodies = [body for body in map(find_object, values) if body is not None]
    declared = [c for body in bodies for c in _after(body.get("schema"))]
    if declared:
        return list({c["field"]: Column(name=c["field"], type=connect_type(c)) for c in declared}.values())
    return seen_columns((body.get("payload") or body).get("after") or {} for body in bodies)


def _after(schema: Any) -> Sequence[Mapping[str, Any]]:
    for part in (schema or {}).get("fields", ()):
        if part.get("field") == "after":
            return part.get("fields", ())  # type: ignore[no-any-return]
    return ()


@lru_cache(64)
def _json_kinds(schema: str) -> Kinds:
    return {c["field"]: (str(c.get("name", "")), c.get("parameters") or {}) for c in _after(json.loads(schema))}


@lru_cache(1000)
def _avro_kinds(schema: RegisteredSchema) -> Kinds:
    kinds = {}
    for field in DebeziumDecoder.row_record(expand_avro(schema))["fields"]:
        for part in field["type"] if isinstance(field["type"], list) else [field["type"]]:
            if isinstance(part, Mapping) and part.get("connect.name"):
                kinds[field["name"]] = (str(part["connect.name"]), part.get("connect.parameters") or {})
    return kinds
