# SPDX-License-Identifier: Apache-2.0
"""A row that left its file explains one row elsewhere: what is there more often came from nowhere."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakeward.lake.core.foreign import MovedRows, find_inserted

OFFSETS = st.lists(st.integers(0, 5), max_size=8)


@given(left=st.lists(OFFSETS, max_size=3), files=st.lists(OFFSETS, max_size=3))
def test_each_row_that_left_explains_one(left: list[list[int]], files: list[list[int]]) -> None:
    moved = [MovedRows([np.array(part, np.int64)]) for part in left]
    found = [find_inserted(np.array(file, np.int64), moved) for file in files]
    before, after = (Counter(offset for part in parts for offset in part) for parts in (left, files))
    inserted = Counter(
        o for file, (mask, _) in zip(files, found, strict=True) for o, new in zip(file, mask, strict=True) if new
    )
    assert inserted == after - before
    assert sum(copies for _, copies in found) == sum(count for o, count in inserted.items() if o in before)
