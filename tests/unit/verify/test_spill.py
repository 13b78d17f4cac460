# SPDX-License-Identifier: Apache-2.0
"""Windows of offsets over rows that come in any order: none lost, none doubled, in memory or on disk; each side is read
once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.lake.core.reader import PositionReader
from lakeward.lake.memory.log import MemoryGround
from lakeward.lake.memory.plugin import MemoryLakeStorage
from lakeward.lake.memory.table import MemoryLake
from lakeward.model import OFFSET, Bucket, TablePath
from lakeward.spi import HotStore, LakeReader
from lakeward.verify import verify_table
from lakeward.verify.bucket import check_bucket
from lakeward.verify.certificate import BucketReport
from lakeward.verify.spill import WindowSpill
from lakeward.verify.task import WINDOW_BYTES, BucketTask
from tests.kit.inprocess import InProcessLakeward


def batch(offsets: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"v": [f"v{o}" for o in offsets], OFFSET: pa.array(offsets, pa.int64())})


@given(
    st.lists(st.lists(st.integers(0, 99), max_size=20), max_size=8),
    st.lists(st.integers(0, 99), min_size=1, max_size=6, unique=True).map(sorted),
    st.sampled_from([0, 200, 1 << 20]),
)
def test_every_row_comes_back_in_its_window(batches: list[list[int]], starts: list[int], held_bytes: int) -> None:
    with WindowSpill(starts, held_bytes) as spill:
        for offsets in batches:
            spill.add(batch(offsets))
        found: Counter[int] = Counter()
        for number, (low, high) in enumerate(zip(starts, [*starts[1:], 100], strict=True)):
            rows = spill.take(number)
            offsets = [] if rows is None else rows.column(OFFSET).to_pylist()
            assert all(low <= o < high for o in offsets)
            assert rows is None or rows.column("v").to_pylist() == [f"v{o}" for o in offsets]
            found.update(offsets)
    assert found == Counter(o for offsets in batches for o in offsets if o >= starts[0])


def test_what_was_on_disk_goes_with_it() -> None:
    with WindowSpill([0, 10], 1) as spill:
        spill.add(batch(list(range(20))))
        assert spill.is_on_disk
        folder = spill._folder
        assert folder is not None
        assert any(folder.iterdir())
    assert not folder.exists()


class CountingReader(PositionReader[MemoryGround]):
    """Counts scans of the rows' values, and of their offsets alone."""

    scans = 0
    offset_scans = 0

    def scan_buckets(self, *arguments: Any, **named: Any) -> Iterator[tuple[Bucket | None, pa.RecordBatch]]:
        self.scans += named["columns"] != [OFFSET]
        self.offset_scans += named["columns"] == [OFFSET]
        return super().scan_buckets(*arguments, **named)


class CountingStore:
    """Counts what is read of a store's rows."""

    snapshots_opened = 0
    snapshots_read = 0
    logs_read = 0

    def __init__(self, real: HotStore) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def read_snapshot(self, table: Any, snapshot: Any, columns: Any = None) -> Iterator[pa.RecordBatch]:
        self.snapshots_opened += 1
        self.snapshots_read += columns != []
        return self._real.read_snapshot(table, snapshot, columns)

    def read_log(self, table: Any, bucket: Any, start: int, stop: int, columns: Any = None) -> Iterator[pa.RecordBatch]:
        self.logs_read += stop - start if columns != [] else 0
        return self._real.read_log(table, bucket, start, stop, columns)


@pytest.mark.parametrize("window_bytes", [320, WINDOW_BYTES], ids=["many-windows", "one-window"])
@pytest.mark.parametrize("pk", [False, True], ids=["log", "pk"])
def test_a_bucket_is_read_once(tmp_path: Path, pk: bool, window_bytes: int) -> None:
    """No second scan for the offsets below the first window where nothing can be; a KV that one window holds is opened
    once. Files and KVs of a few rows cost by their number."""
    lake = MemoryLakeStorage(MemoryLake())
    world = InProcessLakeward(tmp_path, lake)
    try:
        world.create("db.t", "id bigint not null, v string", primary_key="id" if pk else "")
        put = world.upsert if pk else world.append
        for turn in range(3):
            put("db.t", [{"id": i, "v": f"{turn}-{i}"} for i in range(50 * turn, 50 * turn + 100)])
            world.tier("db.t")
        info = world.store.load_table(TablePath.parse("db.t"))
        hot, reader = CountingStore(world.store), CountingReader(lake.open_table(info))

        def run(tasks: Sequence[BucketTask]) -> list[BucketReport]:
            sized = [replace(t, window_bytes=window_bytes) for t in tasks]
            return [check_bucket(t, cast(HotStore, hot), cast(LakeReader, reader)) for t in sized]

        certificate = verify_table(
            world.plugin, info.path, deep=True, run=run, clock=world.clock, open_storage=lambda _plan: lake
        )
        assert certificate.holds, certificate.all_findings
        (found,) = certificate.buckets
        assert found.compared == found.rows == (200 if pk else 300)
        assert (reader.scans, reader.offset_scans, hot.snapshots_read) == (1, 0, 1 if pk else 0)
        assert hot.snapshots_opened == (0 if not pk else 2 if window_bytes == 320 else 1)
        assert hot.logs_read == (0 if pk else found.range.stop)
    finally:
        world.close()
