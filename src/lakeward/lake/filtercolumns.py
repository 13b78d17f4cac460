# SPDX-License-Identifier: Apache-2.0
"""Which columns a filter names: a scan reads these and those that are asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import InvalidRequest

_NO_MATCH = re.compile(r"No match for FieldRef\.Name\((.+?)\) in")


def filter_columns(filter: pc.Expression | None, types: Mapping[str, pa.DataType]) -> tuple[str, ...]:
    """The columns an expression names: it is bound to nothing first, and Arrow says which column it misses."""
    if filter is None:
        return ()
    names: list[str] = []
    while True:
        empty = pa.schema([(n, types[n]) for n in names]).empty_table()
        try:
            empty.filter(filter)
            return tuple(names)
        except pa.ArrowInvalid as error:
            missed = _NO_MATCH.search(str(error))
            if missed is None or missed.group(1) in names or missed.group(1) not in types:
                raise InvalidRequest(what=f"filter {filter}", reason=str(error).splitlines()[0]) from error
            names.append(missed.group(1))
