# SPDX-License-Identifier: Apache-2.0
"""The folds' edges: log tables, refused records, the order of the passes, sub-range ends."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakeward.changelog import Fold, KeyedFold
from lakeward.errors import InvalidRequest
from lakeward.model import ChangeType as C


def batch(*records: tuple[int, C, int | None]) -> pa.RecordBatch:
    offsets, changes, prevs = zip(*records, strict=True)
    columns = {
        "name": pa.array([f"row {o}" for o in offsets]),
        "__offset": pa.array(offsets, pa.int64()),
        "__timestamp": pa.array([0] * len(offsets), pa.timestamp("ms", "UTC")),
        "__change_type": pa.array(changes, pa.int8()),
        "__prev_offset": pa.array(prevs, pa.int64()),
    }
    return pa.record_batch(columns)


def folded(fold: Fold, *batches: pa.RecordBatch, stop: int | None = None) -> list[int]:
    for b in batches:
        fold.see(b)
    fold.seal(stop)
    return [o for b in batches for o in fold.live(b).column("__offset").to_pylist()]


def test_a_log_table_goes_through_unchanged() -> None:
    rows = batch((5, C.APPEND, None), (6, C.APPEND, None)).drop_columns(["__prev_offset"])
    fold = Fold(5, 7)
    assert folded(fold, rows) == [5, 6]
    assert fold.live(rows).schema.names == ["name", "__offset", "__timestamp"]
    assert not fold.replaced_below


def test_records_outside_the_range_neither_count_nor_replace() -> None:
    rows = batch(
        (0, C.INSERT, None), (1, C.INSERT, None), (2, C.UPDATE_BEFORE, 1), (3, C.UPDATE_AFTER, 1), (4, C.DELETE, 3)
    )
    fold = Fold(1, 4)
    assert folded(fold, rows) == [3]
    assert folded(Fold(0, 2), rows) == [0, 1]


def test_replaced_rows_below_the_start_are_handed_on_in_order() -> None:
    rows = batch((10, C.DELETE, 7), (11, C.UPDATE_BEFORE, 2), (12, C.UPDATE_AFTER, 2), (13, C.DELETE, 12))
    fold = Fold(10, 14)
    assert folded(fold, rows) == []
    assert fold.replaced_below.values.tolist() == [2, 7]
    assert fold.replaced.values.tolist() == [2, 7, 12]


def test_a_stop_inside_a_batch_is_refused() -> None:
    fold = Fold(0, 10)
    fold.see(batch((0, C.INSERT, None), (1, C.UPDATE_BEFORE, 0), (2, C.UPDATE_AFTER, 0)))
    with pytest.raises(InvalidRequest, match="boundary"):
        fold.seal(stop=2)


def test_the_order_of_the_passes_is_kept() -> None:
    rows = batch((0, C.INSERT, None))
    fold = Fold(0, 1)
    with pytest.raises(InvalidRequest, match="seal first"):
        fold.live(rows)
    fold.seal()
    with pytest.raises(InvalidRequest, match="pass one is over"):
        fold.see(rows)
    with pytest.raises(InvalidRequest, match="fixed"):
        fold.seal()


@pytest.mark.parametrize("record", [(3, C.UPDATE_AFTER, None), (3, C.DELETE, 3), (3, C.DELETE, 9)])
def test_a_change_that_names_no_older_row_is_refused(record: tuple[int, C, int | None]) -> None:
    with pytest.raises(InvalidRequest, match="offset 3"):
        Fold(0, 10).see(batch(record))


def test_the_keyed_fold_keeps_keys_not_records() -> None:
    fold = KeyedFold(0, 100, ["a", "b"], compact_rows=4)
    batches = [
        pa.record_batch(
            {
                "a": pa.array([i % 2, 7]),
                "b": pa.array(["x", None]),
                "__offset": pa.array([2 * i, 2 * i + 1]),
                "__change_type": pa.array([C.UPDATE_AFTER, C.DELETE], pa.int8()),
            }
        )
        for i in range(10)
    ]
    for b in batches:
        fold.see(b)
    fold.seal()
    assert [o for b in batches for o in fold.live(b).column("__offset").to_pylist()] == [16, 18]
    assert sorted(fold.touched.to_pylist(), key=str) == [{"a": 0, "b": "x"}, {"a": 1, "b": "x"}, {"a": 7, "b": None}]


def test_an_empty_range_folds_to_nothing() -> None:
    fold = KeyedFold(3, 3, ["k"])
    fold.seal()
    assert fold.touched.num_rows == 0
    assert folded(Fold(3, 3)) == []
