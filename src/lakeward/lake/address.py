# SPDX-License-Identifier: Apache-2.0
"""The system columns of a *clean* lake table, which has the user's columns alone: made up while it is read.

A file of a clean log table says its bucket and its first and last offset outside its rows, in its format's own way.
A row's offset is its file's first one plus the row's position, where the file has no hole. What is not known is -1, as
it is in rows of Fluss's KV snapshots.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakeward.model.bucket import Bucket
from lakeward.model.schema import BUCKET, OFFSET, TIMESTAMP

SYSTEM = frozenset({BUCKET, OFFSET, TIMESTAMP})


def fill_address(rows: pa.Table, bucket: Bucket | None, first: int | None, start: int) -> pa.Table:
    """`start`: the position of the table's first row in its file. `first` None: the file does not tell its rows'
    offsets. Columns that the rows do not have are not added.
    """
    for name in SYSTEM & set(rows.column_names):
        at = rows.column_names.index(name)
        values = _column(name, rows.num_rows, bucket, first, start)
        rows = rows.set_column(at, name, values if name == OFFSET else values.cast(rows.schema.types[at]))
    return rows


def _column(name: str, count: int, bucket: Bucket | None, first: int | None, start: int) -> pa.Array:
    if name == BUCKET:
        return pa.array(np.full(count, -1 if bucket is None else bucket.number))
    if name == OFFSET and first is not None:
        return pa.array(np.arange(first + start, first + start + count))
    unknown = pa.array(np.full(count, -1))
    return unknown if name == OFFSET else unknown.cast(pa.timestamp("ms", "UTC"))
