# SPDX-License-Identifier: Apache-2.0
"""Rows of a file without those that deletes name: what every scan of a worn file does."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def keep_rows(rows: pa.Table, keep: npt.NDArray[np.bool_]) -> pa.Table:
    """Column by column: a table's own filter looks every row up by its number, which takes twice as long where few
    rows go."""
    mask = pa.array(keep)
    return pa.Table.from_arrays([c.filter(mask) for c in rows.columns], schema=rows.schema)
