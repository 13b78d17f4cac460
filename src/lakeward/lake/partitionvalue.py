# SPDX-License-Identifier: Apache-2.0
"""Partition keys: which types they may have, and a value from the text that names it."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa

from lakeward.errors import InvalidRequest, UnsupportedType
from lakeward.model import TYPES, PartitionKey, PartitionUnit, TableDescriptor, row_of
from lakeward.model.table import TablePath


def check_partition_keys(path: TablePath, descriptor: TableDescriptor, *, by_time: bool = False) -> None:
    """Of whole columns. The rule is ours: lake formats can do more. `by_time`: the format has partitions by the time of
    a column. Raises `UnsupportedType`."""
    for key in descriptor.partitioning:
        kind = descriptor.schema.column(key.column).type
        if key.unit is None and not row_of(kind).partition_key:
            allowed = ", ".join(r.cls.keyword for r in TYPES if r.partition_key)
            where = f"{path}, partition key {key}"
            way = "partition by a column that holds its day, hour or month instead"
            if by_time and PartitionKey(key.column, PartitionUnit.DAY).why_not(kind) is None:
                way = f"partition by day({key}), hour({key}), month({key}) or year({key}) instead"
            reason = f"{way}; allowed are {allowed}"
            raise UnsupportedType(where=where, type=str(kind), by="Lakeward as a partition key", reason=reason)


def parse_partition_value(text: str | None, kind: pa.DataType) -> Any:
    """As partitions and logs spell it. Raises `InvalidRequest`."""
    if not text:
        return None
    try:
        if pa.types.is_boolean(kind):
            return {"true": True, "false": False}[text.lower()]
        if pa.types.is_integer(kind):
            return int(text)
        if pa.types.is_date(kind):
            return datetime.date.fromisoformat(text)
    except (ValueError, KeyError) as error:
        raise InvalidRequest(what=f"partition value {text!r}", reason=f"it is no {kind}") from error
    if pa.types.is_string(kind):
        return text
    raise InvalidRequest(what=f"partition value {text!r}", reason=f"{kind} is no type for a partition key")
