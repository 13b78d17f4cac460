# SPDX-License-Identifier: Apache-2.0
"""A partition's value, from the text that names it."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa

from lakeward.errors import InvalidRequest


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
