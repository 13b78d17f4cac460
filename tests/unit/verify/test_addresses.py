# SPDX-License-Identifier: Apache-2.0
"""Address counting: missing, doubled and stray rows are each seen, whatever the order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakeward.changelog.rowdiff import altered_offsets
from lakeward.model import Bucket, OffsetRange, OffsetSet
from lakeward.verify.addresses import AddressCount, expected_live
from lakeward.verify.certificate import FindingKind

B = Bucket("", 0)


def counted(stop: int, *offsets: int) -> AddressCount:
    count = AddressCount(stop)
    for offset in offsets:
        count.see(np.array([offset], np.int64))
    return count


def kinds(count: AddressCount, *ranges: OffsetRange) -> dict[FindingKind, tuple[int, ...]]:
    return {f.kind: f.offsets for f in count.check_ranges(B, ranges)}


def test_each_offset_once_is_no_finding() -> None:
    assert kinds(counted(4, 3, 0, 2, 1), OffsetRange(0, 4)) == {}


def test_missing_doubled_and_stray_are_told_apart() -> None:
    found = kinds(counted(5, 0, 0, 3, 4, 9), OffsetRange(0, 2), OffsetRange(3, 4))
    assert found == {FindingKind.MISSING: (1,), FindingKind.DUPLICATE: (0,), FindingKind.STRAY: (4, 9)}


def test_a_batch_that_doubles_itself_is_seen() -> None:
    count = AddressCount(3)
    count.see(np.array([1, 1, 0, 2], np.int64))
    assert [f.kind for f in count.check_ranges(B, [OffsetRange(0, 3)])] == [FindingKind.DUPLICATE]


def test_live_rows_of_then_come_from_the_kv_and_what_was_replaced_since() -> None:
    kv = np.array([2, 7, 11], np.int64)
    live = expected_live(kv, OffsetSet([4, 12]), committed=10)
    assert live == OffsetSet([2, 4, 7])
    assert counted(10, 2, 4, 7).check_set(B, live) == []
    assert counted(10, 2, 7, 9).check_set(B, live)[0].kind is FindingKind.MISSING


def test_rows_are_compared_by_offset_with_nulls_nans_and_nested_values() -> None:
    hot = pa.table({"__offset": [1, 2, 3, 4], "a": [1.0, float("nan"), None, 4.0], "l": [[1], [2], None, [4]]})
    lake = pa.table({"__offset": [4, 3, 2, 9], "a": [4.5, None, float("nan"), 0.0], "l": [[4], None, [2], [0]]})
    different, compared = altered_offsets(hot, lake, ["a", "l"])
    assert (different.tolist(), compared) == ([4], 3)


def test_rows_without_an_offset_are_strays() -> None:
    count = AddressCount(2)
    count.see_column(pa.array([0, None, 1, None], pa.int64()))
    (found,) = count.check_ranges(B, [OffsetRange(0, 2)])
    assert (count.rows, found.kind, found.count) == (4, FindingKind.STRAY, 2)
