# SPDX-License-Identifier: Apache-2.0
"""Small batches travel together: same rows, same order, no batch cut, none too large."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakeward.hot.embedded.serve.packing import PackedReads, packed
from lakeward.model import OFFSET


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


class StoredLog:
    """Stored batches, and how many of them were decoded."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.decoded = 0

    def append(self, rows: int) -> None:
        end = self.end
        self.batches.append(pa.RecordBatch.from_pydict({OFFSET: pa.array(range(end, end + rows), pa.int64())}))

    @property
    def end(self) -> int:
        return sum(b.num_rows for b in self.batches)

    def read(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        for batch in self.batches:
            first, count = batch.column(OFFSET)[0].as_py(), batch.num_rows
            if first < stop and first + count > start:
                self.decoded += 1
                low = max(start, first)
                yield batch.slice(low - first, min(stop, first + count) - low)


@given(
    st.lists(
        st.one_of(st.integers(1, 12), st.tuples(st.integers(0, 200), st.integers(0, 200))), min_size=10, max_size=60
    ),
    st.integers(500, 20_000),
)
def test_kept_packs_give_the_rows_of_the_log_whatever_was_read_before(
    steps: list[int | tuple[int, int]], kept_bytes: int
) -> None:
    log, packs = StoredLog(), PackedReads(kept_bytes)
    for _ in range(20):
        log.append(3)
    for step in steps:
        if isinstance(step, int):
            log.append(step)
            continue
        start, stop = sorted(min(at, log.end) for at in step)
        read = packs.read("table", start, stop, lambda at, stop=stop: log.read(at, stop))  # type: ignore[misc]
        assert [n for b in read for n in b.column(OFFSET).to_pylist()] == list(range(start, stop))


def test_a_second_read_decodes_only_what_is_new() -> None:
    log, packs = StoredLog(), PackedReads()
    for _ in range(100):
        log.append(10)

    def read(what: str, stop: int) -> int:
        before = log.decoded
        assert sum(b.num_rows for b in packs.read(what, 0, stop, lambda at: log.read(at, stop))) == stop
        return log.decoded - before

    assert read("all columns", 1_000) == 100
    assert read("all columns", 1_000) == 0
    log.append(10)
    assert read("all columns", 1_010) == 1
    assert read("one column", 1_010) == 101, "another question"
    assert read("all columns", 500) == 50, "a pack that goes further is not cut"
