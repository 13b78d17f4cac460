# SPDX-License-Identifier: Apache-2.0
"""Avro as Hudi's timeline and log blocks use it, by fastavro: records in container files, or bare. Values of logical
types stay as they are stored.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException

Schema = Any
"""Parsed JSON: a name, a list (union), or an object."""

_PARSED = "__fastavro_parsed__"
_BROKEN = (
    EOFError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    OverflowError,
    StopIteration,
    struct.error,
    zlib.error,
    SchemaParseException,
)


def read_container(data: bytes) -> list[Any]:
    """The records of a container file. Raises `ValueError` for a file that is not one, or is broken."""
    with _as_value_error("it is a broken Avro file"):
        return list(fastavro.reader(io.BytesIO(data)))


def write_container(schema: Schema, record: Mapping[str, Any]) -> bytes:
    """A file of one record."""
    out = io.BytesIO()
    fastavro.writer(out, schema, [record])
    return out.getvalue()


def parse_bare(schema: Schema) -> Schema:
    """For many calls of `read_bare`. Raises `ValueError`."""
    with _as_value_error("it is not an Avro schema"):
        return fastavro.parse_schema(_without_logical_types(schema))


def read_bare(schema: Schema, data: bytes) -> Any:
    """A value without a file around it. Raises `ValueError`."""
    is_parsed = isinstance(schema, dict) and _PARSED in schema
    parsed = schema if is_parsed else parse_bare(schema)
    with _as_value_error("it is not a value of its Avro schema"):
        return fastavro.schemaless_reader(io.BytesIO(data), parsed, None)


def _without_logical_types(schema: Schema) -> Schema:
    if isinstance(schema, list):
        return [_without_logical_types(branch) for branch in schema]
    if isinstance(schema, dict):
        nested = ("type", "items", "values")
        kept = {k: v for k, v in schema.items() if k != "logicalType"}
        for name in nested:
            if name in kept:
                kept[name] = _without_logical_types(kept[name])
        if "fields" in kept:
            kept["fields"] = [_without_logical_types(f) for f in kept["fields"]]
        return kept
    return schema


@contextmanager
def _as_value_error(what: str) -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        raise ValueError(f"{what}: {error!r}") from error
