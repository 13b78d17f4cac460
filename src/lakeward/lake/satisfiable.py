# SPDX-License-Identifier: Apache-2.0
"""Filters of scans: which columns a filter names, and whether it can be true of any row, given facts about all rows:
partition values, bounds of columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as fs

from lakeward.errors import InvalidRequest


def may_match(filter: pc.Expression, schema: pa.Schema, known: Sequence[pc.Expression]) -> list[bool]:
    """Returns, for each of `known` (an expression that holds for every row of a file), whether the filter may hold too.

    Arrow simplifies a filter by known facts only for fragments of a dataset, so each fact becomes a fragment that is
    never opened. When in doubt the answer is yes."""
    import pyarrow.dataset as ds  # loads pandas if installed: half a second that most processes do not need

    parquet, nowhere = ds.ParquetFileFormat(), fs.LocalFileSystem()
    fragments = [parquet.make_fragment(str(at), nowhere, partition_expression=fact) for at, fact in enumerate(known)]
    try:
        matching = ds.FileSystemDataset(fragments, schema, parquet, nowhere).get_fragments(filter=filter)
        possible = {int(f.path) for f in matching}
    except (pa.ArrowException, TypeError, ValueError):
        return [True] * len(known)
    return [at in possible for at in range(len(known))]


_NO_MATCH = re.compile(r"No match for FieldRef\.Name\((.+?)\) in")


def filter_columns(filter: pc.Expression | None, types: Mapping[str, pa.DataType]) -> tuple[str, ...]:
    """Returns the columns that an expression names: it is applied to an empty table, and Arrow reports which column is
    missing."""
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
