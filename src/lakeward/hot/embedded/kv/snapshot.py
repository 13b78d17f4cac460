# SPDX-License-Identifier: Apache-2.0
"""KV snapshots of a bucket: RocksDB checkpoints, each with the log offset it stands for, kept while leased.

A snapshot is a folder that appears by a rename: its name says the offset, `snapshot.json` in it the rest.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from lakeward.errors import SnapshotGone
from lakeward.hot.embedded.kv.database import KvDatabase, KvResources, KvState
from lakeward.hot.embedded.kv.lease import SnapshotLeases
from lakeward.hot.embedded.log.durable import sync_file, sync_folder, write_whole
from lakeward.model import Clock

_META = "snapshot.json"
_DATABASE = "db"
_ASIDE = ".tmp-"
DEFAULT_LEASE_S = 3600.0
"""A round that reads a snapshot is over by then (tiering.round.max-age aside); it may take it again."""


@dataclass(frozen=True)
class StoredSnapshot:
    """`log_offset`: the snapshot holds every record below it. `rows`: its live rows."""

    snapshot_id: str
    log_offset: int
    rows: int
    taken_at_ms: int


class BucketSnapshots:
    """The snapshots of one bucket. Thread-safe."""

    def __init__(self, folder: Path, table: str, resources: KvResources, clock: Clock, retained: int = 2) -> None:
        self._folder, self._table, self._resources, self._clock, self._retained = (
            folder,
            table,
            resources,
            clock,
            retained,
        )
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        for left_over in folder.glob(f"{_ASIDE}*"):
            shutil.rmtree(left_over)
        self._leases = SnapshotLeases(folder / "leases.json", clock)
        self._snapshots = sorted(_load_all(folder), key=lambda s: (s.log_offset, s.taken_at_ms))

    def newest(self) -> StoredSnapshot | None:
        with self._lock:
            return self._snapshots[-1] if self._snapshots else None

    def all(self) -> list[StoredSnapshot]:
        with self._lock:
            return list(self._snapshots)

    def add(self, state: KvState, checkpoint: Callable[[Path], None]) -> StoredSnapshot:
        """Keeps a checkpoint that stands for `state`, which the log holds on disk. A crash leaves it whole or not
        there.
        """
        snapshot = StoredSnapshot(
            f"{state.applied:020d}-{uuid.uuid4().hex[:8]}", state.applied, state.rows, self._clock.now_ms()
        )
        aside = self._folder / f"{_ASIDE}{snapshot.snapshot_id}"
        aside.mkdir()
        try:
            checkpoint(aside / _DATABASE)
            write_whole(aside / _META, json.dumps(asdict(snapshot)).encode())
            aside.rename(self._folder / snapshot.snapshot_id)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        sync_folder(self._folder)
        with self._lock:
            self._snapshots.append(snapshot)
        self.prune()
        return snapshot

    def lease(self, holder: str, snapshot: StoredSnapshot, lease_s: float = DEFAULT_LEASE_S) -> None:
        """Keeps the snapshot for `holder`. Raises `SnapshotGone`."""
        with self._lock:
            if snapshot not in self._snapshots:
                raise self._gone(snapshot.snapshot_id)
            self._leases.take(holder, snapshot.snapshot_id, lease_s)

    def find_leased(self, holder: str) -> StoredSnapshot | None:
        """The snapshot that `holder` has a lease on."""
        with self._lock:
            lease = self._leases.find(holder)
            return next((s for s in self._snapshots if lease is not None and s.snapshot_id == lease.snapshot_id), None)

    def release(self, holder: str) -> None:
        with self._lock:
            released = self._leases.release(holder)
        if released:
            self.prune()

    def prune(self) -> None:
        """Removes all but the newest snapshots and those under a lease."""
        with self._lock:
            leased = self._leases.leased()
            self._remove([s for s in self._snapshots[: -self._retained] if s.snapshot_id not in leased])

    def drop_above(self, offset: int) -> None:
        """Removes snapshots of offsets that the log lost: other rows will get those offsets."""
        with self._lock:
            self._remove([s for s in self._snapshots if s.log_offset > offset])

    def drop(self, snapshot: StoredSnapshot) -> None:
        """Removes one that cannot be read, leased or not."""
        with self._lock:
            self._remove([snapshot])

    def held_from(self) -> int | None:
        """The lowest offset from which the log must stay: a rebuild starts at the newest
        snapshot, a reader at its own.
        """
        with self._lock:
            leased = self._leases.leased()
            held = [s.log_offset for s in self._snapshots[:-1] if s.snapshot_id in leased]
            return min([*held, self._snapshots[-1].log_offset]) if self._snapshots else None

    def scan(self, snapshot_id: str, size: int) -> Iterator[list[bytes]]:
        """The KV values of a snapshot, in lists of up to `size`. Raises `SnapshotGone`."""
        with self._lock:
            if all(s.snapshot_id != snapshot_id for s in self._snapshots):
                raise self._gone(snapshot_id)
            database = KvDatabase(self._folder / snapshot_id / _DATABASE, self._resources, read_only=True)
        try:
            yield from database.scan(size)
        finally:
            database.close()

    def clone(self, snapshot: StoredSnapshot, target: Path) -> None:
        """A database of its own out of a snapshot: tables are hard links, as they never change; the rest is copied."""
        source = self._folder / snapshot.snapshot_id / _DATABASE
        target.mkdir(parents=True)
        for file in source.iterdir():
            if file.suffix == ".sst":
                os.link(file, target / file.name)
            elif file.name != "LOCK":
                shutil.copyfile(file, target / file.name)
                sync_file(target / file.name)
        sync_folder(target)

    def _remove(self, doomed: list[StoredSnapshot]) -> None:
        for snapshot in doomed:
            aside = self._folder / f"{_ASIDE}{snapshot.snapshot_id}"
            (self._folder / snapshot.snapshot_id).rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
            self._snapshots.remove(snapshot)

    def _gone(self, snapshot_id: str) -> SnapshotGone:
        return SnapshotGone(table=self._table, snapshot=snapshot_id, advice="take a new one")


def _load_all(folder: Path) -> Iterator[StoredSnapshot]:
    for path in folder.glob(f"*/{_META}"):
        yield StoredSnapshot(**json.loads(path.read_bytes()))
