# SPDX-License-Identifier: Apache-2.0
"""Filters of scans: which columns one names, and whether it can be true of any row, given what is known of all rows:
partition values, bounds of columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as fs

from lakeward.errors import InvalidRequest


def may_match(filter: pc.Expression, schema: pa.Schema, known: Sequence[pc.Expression]) -> list[bool]:
    """For each of `known` (an expression that holds for every row of something), whether the filter may hold too.

    Arrow simplifies a filter under what is known only for fragments of a dataset, so each fact becomes a fragment that
    is never opened. In doubt the answer is yes."""
    import pyarrow.dataset as ds  # loads pandas where that is installed: half a second that most processes never need

    parquet, nowhere = ds.ParquetFileFormat(), fs.LocalFileSystem()
    fragments = [parquet.make_fragment(str(at), nowhere, partition_expression=fact) for at, fact in enumerate(known)]
    try:
        kept = ds.FileSystemDataset(fragments, schema, parquet, nowhere).get_fragments(filter=filter)
        possible = {int(f.path) for f in kept}
    except (pa.ArrowException, TypeError, ValueError):
        return [True] * len(known)
    return [at in possible for at in range(len(known))]


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
