# SPDX-License-Identifier: Apache-2.0
"""Columns as people write them: SQL text, an Arrow schema, a mapping of names to types, or `Column`s."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakeward.client.frames import schema_of
from lakeward.errors import InvalidRequest
from lakeward.model import Column, DataType, Schema, from_arrow_schema, parse_defaulted, parse_type


def parse_columns(columns: Any, *, has_paths: bool = False) -> tuple[Column, ...]:
    """`"id BIGINT NOT NULL, name STRING"`, a `pa.Schema`, `{"id": "BIGINT NOT NULL"}`, a `Schema`, `Column`s, or
    Arrow data or a frame of pandas or polars, whose columns are taken. `has_paths`: SQL text may name fields inside of
    columns, as `address.zip`."""
    if isinstance(columns, str):
        return _from_sql(columns, has_paths)
    if isinstance(columns, Schema):
        return columns.columns
    if isinstance(columns, pa.Schema):
        return from_arrow_schema(columns)
    if (frame := schema_of(columns)) is not None:
        return from_arrow_schema(frame)
    if isinstance(columns, Mapping):
        return tuple(Column(name=name, type=_type(kind)) for name, kind in columns.items())
    if isinstance(columns, Iterable):
        parsed = tuple(columns)
        if all(isinstance(c, Column) for c in parsed):
            return parsed
    raise InvalidRequest(
        what="columns", reason="give SQL text, an Arrow schema, a frame, a mapping of names to types, or Columns"
    )


def as_names(names: str | Iterable[str] | None) -> tuple[str, ...]:
    """`"a, b"`, one name, or several."""
    if names is None:
        return ()
    if isinstance(names, str):
        return tuple(name.strip() for name in names.split(",") if name.strip())
    return tuple(names)


def with_key(columns: tuple[Column, ...], key: tuple[str, ...]) -> tuple[Column, ...]:
    """Key columns are NOT NULL, whether or not that was spelled out, as in SQL."""
    return tuple(replace(c, type=c.type.with_nullable(False)) if c.name in key else c for c in columns)


def _from_sql(text: str, has_paths: bool) -> tuple[Column, ...]:
    columns = parse_defaulted(text.strip().rstrip(","), has_paths=has_paths)
    return tuple(Column(name=f.name, type=f.type, comment=f.comment, default=default) for f, default in columns)


def _type(kind: Any) -> DataType:
    return kind if isinstance(kind, DataType) else parse_type(str(kind))
