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
from lakeward.hot.embedded.kv.snapshot import BucketSnapshots, StoredSnapshot
from lakeward.hot.embedded.log.durable import write_whole
from lakeward.model import CHANGE_TYPE, OFFSET, TIMESTAMP, ChangeType, fault_point

ORIGIN = "origin"
BEFORE_LOG = -1
"""The origin of a bucket that was loaded: its first rows came before any record, and no log builds them again."""


@dataclass(frozen=True)
class Recovery:
    """Opens one bucket's KV. `folder` holds the database; what is written aside lies beside it."""

    table: str
    bucket: str
    folder: Path
    log: ChangelogLog
    snapshots: BucketSnapshots
    resources: KvResources

    def open(self, builder: PutBuilder, *, damaged: bool = False) -> KvDatabase:
        """A KV that holds exactly the log. Raises `BucketStopped` when nothing is left to build it from.

        `damaged`: what lies there cannot be read; as snapshots share files with it, the log goes before them."""
        self.snapshots.drop_above(self.log.end)
        database = None
        if self.folder.exists() and not damaged:
            database, damaged = self._find_usable()
        if database is None:
            database = self._rebuild(damaged=damaged)
        try:
            if roll_forward(database, self.log, builder):
                # not again after the next crash; retention counts on it too when an old snapshot was the base
                self.log.sync()
                database.flush()
        except BaseException:
            database.close()
            raise
        return database

    def _find_usable(self) -> tuple[KvDatabase | None, bool]:
        """The database as it lies there, unless it is ahead of the log or the log no longer reaches back to it; and
        whether it is damaged."""
        try:
            database = KvDatabase(self.folder, self.resources)
        except KvFailed as error:
            if is_damage(error):
                return None, True
            raise
        if folds(database.state, self.log):
            return database, False
        database.close()
        return None, False

    def _rebuild(self, *, damaged: bool) -> KvDatabase:
        """From the newest snapshot that can be read, else from the log's first record."""
        from_log = damaged and self.log.start <= self._load_origin()
        snapshots = [] if from_log else [s for s in reversed(self.snapshots.all()) if s.log_offset >= self.log.start]
        for snapshot in snapshots:
            self._put_in_place(snapshot)
            database, _ = self._find_usable()
            if database is not None:
                return database
            self.snapshots.drop(snapshot)
        if self.log.start > self._load_origin():
            raise self._lost()
        self._put_in_place(None)
        database = KvDatabase(self.folder, self.resources)
        database.write([], [], KvState(applied=self.log.start))
        return database

    def _load_origin(self) -> int:
        """The offset of the bucket's first record ever: a partition that was dropped and made again goes on where it
        was.

        Noted when KV is first made, before anything is put: retention takes no record before there is a snapshot."""
        path = self.folder.with_name(ORIGIN)
        origin = int(path.read_bytes()) if path.exists() else 0
        if origin != BEFORE_LOG and self.log.start == self.log.end and not self.snapshots.all():
            origin = self.log.start
            write_whole(path, str(origin).encode())
        return origin

    def _put_in_place(self, snapshot: StoredSnapshot | None) -> None:
        """Never changes the database in place: a crash in the middle leaves none, and the next
        start builds it again.
        """
        aside, old = self.folder.with_name("building"), self.folder.with_name("discarded")
        for leftover in (aside, old):
            shutil.rmtree(leftover, ignore_errors=True)
        if self.folder.exists():
            self.folder.rename(old)
        if snapshot is None:
            aside.mkdir(parents=True)
        else:
            self.snapshots.clone(snapshot, aside)
        fault_point("kv.rebuild", folder=self.folder)
        aside.rename(self.folder)
        shutil.rmtree(old, ignore_errors=True)

    def _lost(self) -> BucketStopped:
        reason = (
            f"KV does not fit the log, which begins at {self.log.start}, and no KV snapshot reaches it; restore "
            f"a backup of the bucket"
        )
        return BucketStopped(table=self.table, bucket=self.bucket, what="reads by key and writes", reason=reason)


def folds(state: KvState, log: ChangelogLog) -> bool:
    """Whether KV is a fold of this very log up to some offset of it: not ahead, not from before a loss that left a gap,
    and the log reaches back to it."""
    if not log.start <= state.applied <= log.end:
        return False
    if state.last_offset < log.start:
        return True  # nothing applied yet, or retention took the record
    times = [
        t
        for b in log.read(state.last_offset, state.last_offset + 1, unsynced=True)
        for t in b.column(TIMESTAMP).cast(pa.int64()).to_pylist()
    ]
    return times[-1:] == [state.last_at_ms]


def is_damage(error: KvFailed) -> bool:
    """Files that are broken or gone: trying again does not help. Anything else (disk full, I/O error) may pass."""
    return any(sign in error.reason for sign in ("Corruption", "No such file", "KV state version"))


def roll_forward(database: KvDatabase, log: ChangelogLog, builder: PutBuilder) -> int:
    """Applies what the log has and KV has not; returns how many records that were."""
    begun_at = database.state.applied
    for batch in log.read(begun_at, log.end, unsynced=True):
        _apply(database, batch, builder)
    if database.state.applied < log.end:
        # batches without records at the end: they only hold a writer's sequence
        database.write([], [], database.state.after(stop=log.end, growth=0, records=0, at_ms=0))
    return log.end - begun_at


def _apply(database: KvDatabase, batch: pa.RecordBatch, builder: PutBuilder) -> None:
    kinds = batch.column(CHANGE_TYPE).to_numpy(zero_copy_only=False)
    offsets = batch.column(OFFSET).to_numpy(zero_copy_only=False)
    times = batch.column(TIMESTAMP).cast(pa.int64()).to_numpy(zero_copy_only=False)
    keys, bodies, deleted = builder.replay(batch, kinds)
    is_applied = kinds != ChangeType.UPDATE_BEFORE
    values: list[bytes | None] = list(builder.codec.pack(bodies, offsets[is_applied], times[is_applied]).to_pylist())
    for i in np.flatnonzero(deleted).tolist():
        values[i] = None
    growth = int((kinds == ChangeType.INSERT).sum() - deleted.sum())
    state = database.state.after(stop=int(offsets[-1]) + 1, growth=growth, records=len(offsets), at_ms=int(times[-1]))
    database.write(keys, values, state)
