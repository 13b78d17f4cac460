# SPDX-License-Identifier: Apache-2.0
"""Log ends of several tables at one moment: whoever wrote to one and then to the other is never seen half."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import Bucket, CutEnds, OffsetMap, TableId, TableInfo
from lakeward_testing.faults import Faults
from tests.unit.hot.embedded.yard import B0, Yard, rows

DAY = {"id": "BIGINT NOT NULL", "text": "STRING NOT NULL"}


@pytest.mark.parametrize("partition", ["", "old", "new"])
def test_what_was_acknowledged_before_is_in_a_cut_that_has_what_came_after(yard: Yard, partition: str) -> None:
    """A writer that comes between the looks at two tables waits, whether its partition is there already or not."""
    store, keys = yard.open(), ("text",) if partition else ()
    first, second = (yard.table(name, columns=DAY, partition_keys=keys) for name in ("first", "second"))
    before, bucket = Bucket("old" if partition else "", 0), Bucket(partition, 0)
    for table in (first, second):
        store.create_table(table)
        store.append(table, before, rows(0, text=before.partition))
    made: list[Mapping[TableId, CutEnds]] = []

    def write() -> None:
        for table in (first, second):
            store.append(table, bucket, rows(1, text=partition))

    freezer = threading.Thread(target=lambda: made.append(store.freeze_cut("c", [first, second])))
    writer = threading.Thread(target=write)
    with Faults() as faults:
        between = faults.arm("hotcut.table", "pause")
        freezer.start()
        between.wait_reached()
        writer.start()
        writer.join(0.2)  # time enough to get through, were it let
        between.release()
        freezer.join()
        writer.join()
    (ends,) = made
    assert [sum(ends[table.table_id].ends.values()) for table in (first, second)] == [1, 1]
    assert sum(bounds.end for bounds in store.freeze(second).values()) == 2


def test_a_cut_is_on_disk_and_rounds_are_told_of_it_until_it_is_forgotten(yard: Yard) -> None:
    store, table = yard.open(), yard.table(buckets=2)
    store.create_table(table)
    store.begin_append(table, B0, rows(1, 2, 3))
    ends = store.freeze_cut("month-end", [table])
    assert ends[table.table_id].ends == OffsetMap({B0: 3, Bucket("", 1): 0})
    assert store.bounds(table)[B0].end == 3
    store.append(table, B0, rows(4))
    frozen = store.freeze_table(table.path)
    assert (frozen.bounds[B0].end, frozen.cuts) == (4, (ends[table.table_id],))
    store.forget_cut("month-end")
    assert store.freeze_table(table.path).cuts == ()


def test_offsets_of_partitions_that_were_dropped_are_known_to_a_cut(store: EmbeddedStore, yard: Yard) -> None:
    table: TableInfo = yard.table(columns=DAY, partition_keys=("text",))
    store.create_table(table)
    for day in ("a", "b"):
        store.append(table, Bucket(day, 0), rows(1, 2, text=day))
    store.drop_partition(table, "a")
    ends = store.freeze_cut("c", [table])[table.table_id]
    assert (ends.ends, ends.gone) == (OffsetMap({Bucket("b", 0): 2}), OffsetMap({Bucket("a", 0): 2}))
    assert ends.is_at({Bucket("a", 0): 1, Bucket("b", 0): 2})
    assert ends.is_passed({Bucket("a", 0): 3, Bucket("b", 0): 2})
    assert ends.is_passed({Bucket("new", 0): 1, Bucket("b", 0): 2})
