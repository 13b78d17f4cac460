# SPDX-License-Identifier: Apache-2.0
"""Fills the KV of one bucket with rows that existed before its log. Rows come in an order that never changes, and the
first has offset 0. The number of loaded rows is written with them: after a crash the loaded ones are skipped, and a
second row with the same key can be distinguished from a row that is sent again."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import InvalidTable, LoadLost
from lakeward.hot.embedded.kv.database import KvDatabase, KvResources, KvState
from lakeward.hot.embedded.kv.put import PutBuilder
from lakeward.hot.embedded.kv.recovery import BEFORE_LOG, ORIGIN
from lakeward.hot.embedded.kv.rows import align_rows
from lakeward.hot.embedded.kv.snapshot import BucketSnapshots
from lakeward.hot.embedded.log.durable import write_whole
from lakeward.model import Clock

_DATABASE, _SNAPSHOTS = "db", "snapshots"
_SAMPLES = 5


class KvLoad:
    """One thread. `folder` is the bucket's, as `KvBucket` has it."""

    def __init__(self, folder: Path, builder: PutBuilder, resources: KvResources, clock: Clock) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._builder, self._resources, self._clock = folder, builder, resources, clock
        self._database = KvDatabase(folder / _DATABASE, resources)

    @property
    def rows(self) -> int:
        return self._database.state.rows

    def put(self, rows: pa.RecordBatch, start: int, at_ms: int) -> None:
        """Rows of which the first is number `start` of the bucket. Raises `InvalidTable` for a key that is there twice,
        `LoadLost` where rows before it are missing."""
        stored_rows = self.rows
        if start > stored_rows:
            raise LoadLost(table=self._builder.table, reason=f"{stored_rows} of {start} rows are in {self._folder}")
        rows = rows.slice(min(rows.num_rows, stored_rows - start))
        if not rows.num_rows:
            return
        aligned_rows = align_rows(self._builder.table, self._builder.codec.arrow, rows, None, self._builder.keys.names)
        keys = self._builder.keys.encode(aligned_rows)
        order = pc.array_sort_indices(keys)
        listed: list[bytes] = keys.take(order).to_pylist()
        self._check_new(aligned_rows, order, listed)
        bodies = self._builder.codec.encode(aligned_rows).take(order)
        offsets = stored_rows + order.to_numpy().astype(np.int64)
        values = self._builder.codec.pack(bodies, offsets, at_ms).to_pylist()
        count = stored_rows + aligned_rows.num_rows
        self._database.write(listed, values, KvState(applied=count, rows=count))

    def _check_new(self, rows: pa.RecordBatch, order: pa.Array, listed: list[bytes]) -> None:
        there = np.array([v is not None for v in self._database.get(listed)])
        there[1:] |= np.array([a == b for a, b in pairwise(listed)], np.bool_)
        if not there.any():
            return
        names = self._builder.keys.names
        samples = rows.select(list(names)).take(order.filter(pa.array(there))).slice(0, _SAMPLES).to_pylist()
        spelled = "; ".join(", ".join(f"{k} = {v!r}" for k, v in s.items()) for s in samples)
        reason = f"{int(there.sum())} rows or more have the key of another one ({spelled}); delete them there first"
        raise InvalidTable(table=self._builder.table, field="primary key", value=", ".join(names), reason=reason)

    def flush(self) -> None:
        self._database.flush()

    def seal(self, rows: int, end: int) -> None:
        """All rows are in, and the bucket's log begins at `end`. Durable when it returns. Safe to repeat. Raises
        `LoadLost`.

        The snapshot is what a damaged KV, and a backup, are built from: no log has these rows."""
        if self.rows != rows:
            raise LoadLost(table=self._builder.table, reason=f"{self.rows} of {rows} rows are in {self._folder}")
        self._database.write([], [], replace(self._database.state, applied=end))
        self._database.flush()
        write_whole(self._folder / ORIGIN, str(BEFORE_LOG).encode())
        snapshots = BucketSnapshots(
            self._folder / _SNAPSHOTS, self._builder.table, self._resources, self._clock, retained=1
        )
        newest = snapshots.newest()
        if newest is None or newest.log_offset != end:
            snapshots.add(self._database.state, self._database.checkpoint)

    def close(self) -> None:
        self._database.close()
