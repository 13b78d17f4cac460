# SPDX-License-Identifier: Apache-2.0
"""Rows of two tables matched by key: only keys and row numbers are joined, as Arrow joins no lists or structs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_LEFT, _RIGHT = "__left", "__right"
RowNumbers = npt.NDArray[np.int64]


def pair_rows(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> tuple[RowNumbers, RowNumbers]:
    """Row numbers on both sides of every pair that has the same key."""
    paired = _numbered(rows, key, _LEFT).join(_numbered(others, key, _RIGHT, rows), keys=list(key), join_type="inner")
    left, right = (paired.column(n).to_numpy().astype(np.int64) for n in (_LEFT, _RIGHT))
    return left, right


def rows_not_in(rows: pa.Table, keys: pa.Table, key: Sequence[str]) -> RowNumbers:
    """Numbers of the rows whose key is none of these, ascending."""
    left = _numbered(rows, key, _LEFT)
    kept = left.join(_numbered(keys, key, _RIGHT, rows).select(list(key)), keys=list(key), join_type="left anti")
    numbers: RowNumbers = np.sort(kept.column(_LEFT).to_numpy().astype(np.int64))
    return numbers


def _numbered(rows: pa.Table, key: Sequence[str], name: str, like: pa.Table | None = None) -> pa.Table:
    """Keys with the number of their row. The two sides may spell a key's type differently: TINYINT is an int in
    Iceberg."""
    keys = rows.select(list(key))
    if like is not None:
        keys = keys.cast(pa.schema([(n, like.schema.field(n).type) for n in key]))
    return keys.append_column(name, pa.array(np.arange(rows.num_rows)))
