# SPDX-License-Identifier: Apache-2.0
"""Partition keys: which types they may have, and a value from the text that names it."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa

from lakeward.errors import InvalidRequest, UnsupportedType
from lakeward.model.table import TableDescriptor, TablePath
from lakeward.model.typetable import TYPES, row_of


def check_partition_keys(path: TablePath, descriptor: TableDescriptor) -> None:
    """The rule is ours: lake formats can do more. Raises `UnsupportedType`."""
    for name in descriptor.partition_keys:
        kind = descriptor.schema.column(name).type
        if not row_of(kind).partition_key:
            allowed = ", ".join(r.cls.keyword for r in TYPES if r.partition_key)
            where = f"{path}, partition key {name}"
            reason = f"partition by a column that holds its day, hour or month instead; allowed are {allowed}"
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
