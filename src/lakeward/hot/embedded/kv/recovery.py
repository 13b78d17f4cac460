# SPDX-License-Identifier: Apache-2.0
"""Brings KV in line with its log, which is the truth: KV behind is rolled forward, KV ahead or broken is rebuilt."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakeward.errors import BucketStopped, KvFailed
from lakeward.hot.embedded.kv.changelog_log import ChangelogLog
from lakeward.hot.embedded.kv.database import KvDatabase, KvResources, KvState
from lakeward.hot.embedded.kv.put import PutBuilder
from lakeward.hot.embedded.kv.snapshot import KvSnapshots
from lakeward.model.change import ChangeType
from lakeward.model.faults import fault_point
from lakeward.model.schema import CHANGE_TYPE, OFFSET, TIMESTAMP


@dataclass(frozen=True)
class Recovery:
    """Opens one bucket's KV. `folder` holds the database; what is written aside lies beside it."""

    table: str
    bucket: str
    folder: Path
    log: ChangelogLog
    snapshots: KvSnapshots
    resources: KvResources

    def open(self, builder: PutBuilder) -> KvDatabase:
        """A KV that holds exactly the log. Raises `BucketStopped` when nothing is left to build it from."""
        self.snapshots.drop_above(self.log.end)
        database = self._find_usable()
        if database is None:
            database = self._rebuild()
        try:
            roll_forward(database, self.log, builder)
        except BaseException:
            database.close()
            raise
        return database

    def _find_usable(self) -> KvDatabase | None:
        """The database as it lies there, unless it is missing, broken, ahead of the log, or the log no longer reaches back to it."""
        if not self.folder.exists():
            return None
        try:
            database = KvDatabase(self.folder, self.resources)
        except KvFailed as error:
            if "Corruption" in error.reason or "version" in error.reason:
                return None
            raise
        if self.log.start <= database.state.applied <= self.log.end:
            return database
        database.close()
        return None

    def _rebuild(self) -> KvDatabase:
        """Never changes the database in place: a crash in the middle leaves none, and the next start builds it again."""
        aside, old = self.folder.with_name("building"), self.folder.with_name("discarded")
        for leftover in (aside, old):
            shutil.rmtree(leftover, ignore_errors=True)
        if self.folder.exists():
            self.folder.rename(old)
        base = self.snapshots.newest()
        if base is not None and base.log_offset >= self.log.start:
            self.snapshots.clone(base, aside)
        elif self.log.start > 0:
            raise self._lost()
        else:
            aside.mkdir(parents=True)
        fault_point("kv.rebuild", folder=self.folder)
        aside.rename(self.folder)
        shutil.rmtree(old, ignore_errors=True)
        return KvDatabase(self.folder, self.resources)

    def _lost(self) -> BucketStopped:
        reason = f"KV does not fit the log, which begins at {self.log.start}, and no KV snapshot reaches it; restore a backup of the bucket"
        return BucketStopped(table=self.table, bucket=self.bucket, what="reads by key and writes", reason=reason)


def roll_forward(database: KvDatabase, log: ChangelogLog, builder: PutBuilder) -> int:
    """Applies what the log has and KV has not; returns how many records that were."""
    begun_at = database.state.applied
    for batch in log.read(begun_at, log.end, unsynced=True):
        _apply(database, batch, builder)
    if database.state.applied < log.end:
        # batches without records at the end: they only hold a writer's sequence
        database.write([], [], KvState(log.end, database.state.rows))
    return log.end - begun_at


def _apply(database: KvDatabase, batch: pa.RecordBatch, builder: PutBuilder) -> None:
    kinds = batch.column(CHANGE_TYPE).to_numpy(zero_copy_only=False)
    offsets = batch.column(OFFSET).to_numpy(zero_copy_only=False)
    times = batch.column(TIMESTAMP).cast(pa.int64()).to_numpy(zero_copy_only=False)
    keys, bodies, deleted = builder.replay(batch, kinds)
    kept = kinds != ChangeType.UPDATE_BEFORE
    values: list[bytes | None] = list(builder.codec.pack(bodies, offsets[kept], times[kept]).to_pylist())
    for i in np.flatnonzero(deleted).tolist():
        values[i] = None
    growth = int((kinds == ChangeType.INSERT).sum() - deleted.sum())
    database.write(keys, values, KvState(int(offsets[-1]) + 1, database.state.rows + growth))
