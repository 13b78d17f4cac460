# SPDX-License-Identifier: Apache-2.0
"""Read leases: which snapshot and which log offsets readers still need, and which snapshots are marked to go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.readlease import Mark, ReadLease
from lakeward.errors import SnapshotGone
from lakeward.model import Bucket, ExpiringSnapshot, LeaseId, OffsetMap, SideId, SnapshotId, TableId, new_lease_id


class ReadLeases:
    """In memory for the retention guard, in the store for restarts. Leases and expiry marks change under one lock and
    in one transaction: a marked snapshot cannot be leased, a leased one cannot be marked."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._leases: dict[LeaseId, ReadLease] = {}
        self._marks: dict[SideId, dict[SnapshotId, Mark]] = {}
        self.keeps: Callable[[SideId, SnapshotId], bool] = lambda _side, _snapshot: False
        """Who besides readers needs a snapshot."""

    def load(self) -> None:
        store = self._board.store
        self._leases = {lease.lease_id: lease for lease in store.load_read_leases()}
        for side, mark in store.load_marks():
            self._marks.setdefault(side, {})[mark.snapshot.snapshot_id] = mark

    def take(
        self, side: SideId, snapshot_id: SnapshotId | None, offsets: Mapping[Bucket, int], lease_s: float
    ) -> ReadLease | None:
        """A lease; None when the snapshot is marked to go."""
        board = self._board
        with board.lock:
            if snapshot_id is not None and snapshot_id in self._marks.get(side, ()):
                return None
            lease = ReadLease(new_lease_id(), side, snapshot_id, self._end(lease_s), OffsetMap(offsets))
            self._save(lease)
            self._leases[lease.lease_id] = lease
            return lease

    def renew(self, lease_id: LeaseId, lease_s: float, snapshot_id: SnapshotId | None = None) -> ReadLease:
        """`snapshot_id` moves the lease to another snapshot. Raises `SnapshotGone` when the lease ended already, or
        when that snapshot is marked to go."""
        with self._board.lock:
            lease = self._leases.get(lease_id)
            if lease is None or lease.ends_at_ms <= self._board.clock.now_ms():
                snapshot = str(lease.snapshot_id) if lease is not None else "it held"
                raise SnapshotGone(
                    table=f"of read lease {lease_id}", snapshot=snapshot, advice="the lease ended; plan the read again"
                )
            if snapshot_id is not None:
                if snapshot_id in self._marks.get(lease.side, ()):
                    raise SnapshotGone(
                        table=f"of read lease {lease_id}",
                        snapshot=snapshot_id,
                        advice="it expires just now; name a newer one",
                    )
                lease.snapshot_id = snapshot_id
            lease.ends_at_ms = max(lease.ends_at_ms, self._end(lease_s))
            self._save(lease)
            return lease

    def release(self, lease_id: LeaseId) -> None:
        with self._board.lock, self._board.store.transaction():
            self._board.store.forget_read_lease(lease_id)
            self._leases.pop(lease_id, None)

    def sweep(self) -> int:
        now_ms = self._board.clock.now_ms()
        with self._board.lock:
            ended = [lease.lease_id for lease in self._leases.values() if lease.ends_at_ms <= now_ms]
            for lease_id in ended:
                self.release(lease_id)
            return len(ended)

    # ---- asked by retention and expiry ----
    def held_from(self, table_id: TableId, bucket: Bucket) -> int | None:
        now_ms = self._board.clock.now_ms()
        with self._board.lock:
            held = [
                x.offsets[bucket]
                for x in self._leases.values()
                if x.side.table_id == table_id and x.ends_at_ms > now_ms and bucket in x.offsets
            ]
        return min(held, default=None)

    def mark(self, side: SideId, snapshots: Iterable[ExpiringSnapshot], token: str | None = None) -> list[SnapshotId]:
        """Marks the snapshots that are not leased, so that they can no longer be leased, and returns them. `token`: for
        a round that demands it."""
        now_ms = self._board.clock.now_ms()
        with self._board.lock, self._board.store.transaction():
            marks = self._marks.setdefault(side, {})
            leased = {x.snapshot_id for x in self._leases.values() if x.side == side and x.ends_at_ms > now_ms}
            free = {
                s.snapshot_id: s
                for s in snapshots
                if s.snapshot_id not in leased and not self.keeps(side, s.snapshot_id)
            }
            new_marks = {i: Mark(s, marks[i].token if token is None and i in marks else token) for i, s in free.items()}
            self._board.store.save_marks(side, new_marks.values())
            marks.update(new_marks)
            return list(new_marks)

    def unmark(self, side: SideId, snapshots: Iterable[SnapshotId]) -> None:
        """After they and their files are gone (snapshot ids do not come back), or when no round can take them out any
        more.
        """
        gone = list(snapshots)
        with self._board.lock, self._board.store.transaction():
            self._board.store.forget_marks(side, gone)
            for snapshot_id in gone:
                self._marks.get(side, {}).pop(snapshot_id, None)

    def lift(self, side: SideId, marks: Iterable[Mark]) -> None:
        """Takes back marks that are still as they were seen: a round may have been granted a snapshot meanwhile."""
        with self._board.lock:
            now = self._marks.get(side, {})
            self.unmark(side, [m.snapshot.snapshot_id for m in marks if now.get(m.snapshot.snapshot_id) == m])

    def marked(self, side: SideId) -> list[Mark]:
        with self._board.lock:
            return [mark for _, mark in sorted(self._marks.get(side, {}).items())]

    def count(self) -> int:
        return len(self._leases)

    def _end(self, lease_s: float) -> int:
        return self._board.clock.now_ms() + int(1_000 * min(max(0.0, lease_s), self._board.options.read_lease_limit_s))

    def _save(self, lease: ReadLease) -> None:
        with self._board.store.transaction():
            self._board.store.save_read_lease(lease)
