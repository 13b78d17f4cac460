# SPDX-License-Identifier: Apache-2.0
"""Merges files of a bucket that are each sorted by key: of a key the youngest row stays.

Some rows of each file are held at a time. What comes before the last held row of every file that goes on is complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model import OFFSET

SEQUENCE, KIND = "_SEQUENCE_NUMBER", "_VALUE_KIND"
_FILE = "_FILE"
_LIVE_KINDS = pa.array([0, 2], pa.int8())
"""+I and +U."""

Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]


def merge_by_key(
    files: Sequence[Iterator[pa.Table]], keys: Sequence[str], *, is_by_offset: bool = True
) -> Iterator[pa.Table]:
    """Sorted by key, each key once; deletes are rows like others."""
    order = [(name, "ascending") for name in (*keys, *((OFFSET,) if is_by_offset else ()), SEQUENCE)]
    going, held = dict(enumerate(files)), list[pa.Table]()
    hungry = set(going)
    while True:
        for number in sorted(hungry):
            part = next(going[number], None)
            if part is None:
                del going[number]
            else:
                held.append(part.append_column(_FILE, pa.array(np.full(part.num_rows, number, np.int32))))
        if not held:
            return
        rows = pa.concat_tables(held).combine_chunks().sort_by(order)
        last = _last_of_key(rows, keys)
        source = rows.column(_FILE).to_numpy()
        stop = _complete(source, going)
        yield rows.slice(0, stop).filter(pa.array(last[:stop])).drop_columns([_FILE])
        held = [rows.slice(stop)] if stop < rows.num_rows else []
        hungry = set(going) - set(source[stop:].tolist())


def without_deletes(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.is_in(rows.column(KIND), _LIVE_KINDS))


def count_deletes(rows: pa.Table) -> int:
    live: int = pc.sum(pc.is_in(rows.column(KIND), _LIVE_KINDS)).as_py() or 0
    return int(rows.num_rows) - live


def _complete(source: np.ndarray[Any, Any], going: dict[int, Iterator[pa.Table]]) -> int:
    """How many rows nothing can come before any more."""
    return min((int(np.flatnonzero(source == number)[-1]) + 1 for number in going), default=len(source))


def _last_of_key(rows: pa.Table, keys: Sequence[str]) -> Flags:
    same = np.ones(max(0, rows.num_rows - 1), np.bool_)
    for name in keys:
        column = rows.column(name).combine_chunks()
        same &= pc.equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy(zero_copy_only=False)
    return np.append(~same, True)
