# SPDX-License-Identifier: Apache-2.0
"""A full disk: writes are refused, reads and state go on, and freeing space heals it without a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.errors import DiskFull
from lakeward.hot.embedded.disk import DiskReserve
from lakeward.hot.embedded.log.writers import WriterSequence
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward_testing.faults import Faults
from tests.unit.hot.embedded.yard import B0, Yard, read, rows


def test_the_reserve_refuses_writes_and_heals(yard: Yard) -> None:
    free = 1 << 40
    yard.free = lambda _: free
    yard.settings["server.disk.reserve"] = "1mb"
    store, table = yard.open(), yard.table(properties={"table.log.fsync": "never"})
    store.create_table(table)
    store.append(table, B0, rows(1), WriterSequence(1, 0))
    free = (1 << 20) + 10
    with pytest.raises(DiskFull) as caught:
        for n in range(1000):
            store.append(table, B0, rows(2, text="x" * 500), WriterSequence(1, n + 1))
    assert (caught.value.free_bytes, caught.value.reserve_bytes) == (free, 1 << 20)
    assert store.sizes()[0].local_bytes <= (1 << 20) / 16, (
        "between two looks at the disk only a 16th of the reserve is written"
    )
    before = read(store, table)
    store.create_table(yard.table(name="more"))  # state still works
    free = 1 << 40
    store.append(table, B0, rows(3), WriterSequence(1, n + 1))
    assert read(store, table)[: len(before)] == before
    assert read(store, table)[-1][1] == 3


def test_looks_are_few_while_there_is_room_and_many_while_there_is_none(tmp_path: Path) -> None:
    looks = 0

    def free(_: Path) -> int:
        nonlocal looks
        looks += 1
        return room

    room = 10_000
    reserve = DiskReserve(tmp_path, 1600, free)
    for _ in range(20):
        reserve.take(10)
    assert looks == 2
    room = 1600
    for _ in range(3):
        with pytest.raises(DiskFull):
            reserve.take(1000)
    assert looks == 5


def test_a_write_that_the_system_refuses_leaves_nothing(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    store.append(table, B0, rows(1))
    with Faults() as faults:
        faults.arm("hotlog.before-write", error=lambda: OSError(28, "No space left on device"), times=2)
        for _ in range(2):
            with pytest.raises(DiskFull):
                store.append(table, B0, rows(2))
    store.append(table, B0, rows(3))
    assert read(store, table) == [(0, 1), (1, 3)]
