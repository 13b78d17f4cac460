# SPDX-License-Identifier: Apache-2.0
"""Small batches travel together: same rows, same order, no batch cut, none too large."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakeward.hot.embedded.serve.packing import packed


@given(st.lists(st.integers(0, 30), max_size=40))
def test_packing_keeps_rows_order_and_boundaries(sizes: list[int]) -> None:
    ends = list(accumulate(sizes))
    batches = [
        pa.RecordBatch.from_pydict({"n": pa.array(range(e - s, e), pa.int64())})
        for s, e in zip(sizes, ends, strict=True)
    ]
    found = list(packed(batches, rows=20))
    assert [n for b in found for n in b.column("n").to_pylist()] == list(range(sum(sizes)))
    assert set(accumulate(b.num_rows for b in found)) <= set(ends)
    assert all(b.num_rows <= 20 or b.num_rows in sizes for b in found)
    assert all(a.num_rows + b.num_rows > 20 or a.num_rows > 10 for a, b in pairwise(found))


def test_bytes_bound_a_batch_too() -> None:
    batches = [pa.RecordBatch.from_pydict({"v": ["x" * 1000]}) for _ in range(10)]
    assert [b.num_rows for b in packed(batches, size=3_100)] == [3, 3, 3, 1]
