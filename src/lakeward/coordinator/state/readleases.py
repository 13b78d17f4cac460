# SPDX-License-Identifier: Apache-2.0
"""Read leases: which snapshot and which log offsets readers still need, and which snapshots are marked to go."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lakeward.coordinator.state.board import Board
from lakeward.errors import SnapshotGone
from lakeward.model.bucket import Bucket
from lakeward.model.expiry import ExpiringSnapshot
from lakeward.model.ids import LeaseId, SnapshotId, TableId, new_lease_id
from lakeward.model.offsets import OffsetMap


@dataclass
class ReadLease:
    """`offsets`: the first offset of each bucket's hot tail that the reader will ask for. Ends by wall time: it is told
    to readers and survives a restart."""

    lease_id: LeaseId
    table_id: TableId
    snapshot_id: SnapshotId | None
    ends_at_ms: int
    offsets: OffsetMap


@dataclass(frozen=True)
class Mark:
    """A snapshot on its way out. `token`: the round that may take it out demands this as the lake's newest; None: no
    round does.
    """

    snapshot: ExpiringSnapshot
    token: str | None = None


class ReadLeases:
    """In memory for the retention guard, in the store for restarts. Leases and expiry marks change under one lock and
    in one transaction: a marked snapshot cannot be leased, a leased one cannot be marked."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._leases: dict[LeaseId, ReadLease] = {}
        self._marks: dict[TableId, dict[SnapshotId, Mark]] = {}

    def load(self) -> None:
        connection = self._board.store.connection
        for lease_id, table_id, snapshot_id, ends, offsets in connection.execute("select * from read_leases"):
            lease = ReadLease(lease_id, table_id, snapshot_id, ends, OffsetMap.from_json(json.loads(offsets)))
            self._leases[lease.lease_id] = lease
        for table_id, snapshot_id, trace, token in connection.execute(
            "select table_id, snapshot_id, trace, token from marks"
        ):
            going = ExpiringSnapshot(snapshot_id=snapshot_id, trace=trace)
            self._marks.setdefault(table_id, {})[snapshot_id] = Mark(going, token)

    def take(
        self, table_id: TableId, snapshot_id: SnapshotId | None, offsets: Mapping[Bucket, int], lease_s: float
    ) -> ReadLease | None:
        """A lease; None when the snapshot is marked to go."""
        board = self._board
        with board.lock:
            if snapshot_id is not None and snapshot_id in self._marks.get(table_id, ()):
                return None
            lease = ReadLease(new_lease_id(), table_id, snapshot_id, self._end(lease_s), OffsetMap(offsets))
            self._save(lease)
            self._leases[lease.lease_id] = lease
            return lease

    def renew(self, lease_id: LeaseId, lease_s: float, snapshot_id: SnapshotId | None = None) -> ReadLease:
        """`snapshot_id` moves the lease to another snapshot. Raises `SnapshotGone` when the lease ended already, or
        when that snapshot is marked to go."""
        with self._board.lock:
            lease = self._leases.get(lease_id)
            if lease is None or lease.ends_at_ms <= self._board.clock.now_ms():
                snapshot = str(lease.snapshot_id) if lease is not None else "?"
                raise SnapshotGone(
                    table=f"of read lease {lease_id}", snapshot=snapshot, advice="the lease ended; plan the read again"
                )
            if snapshot_id is not None:
                if snapshot_id in self._marks.get(lease.table_id, ()):
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
            self._board.store.connection.execute("delete from read_leases where lease_id = ?", (lease_id,))
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
                if x.table_id == table_id and x.ends_at_ms > now_ms and bucket in x.offsets
            ]
        return min(held, default=None)

    def mark(
        self, table_id: TableId, snapshots: Iterable[ExpiringSnapshot], token: str | None = None
    ) -> list[SnapshotId]:
        """Marks those that nobody leases, so that nobody can any more; returns them. `token`: for a round that demands
        it.
        """
        now_ms = self._board.clock.now_ms()
        with self._board.lock, self._board.store.transaction():
            marks = self._marks.setdefault(table_id, {})
            leased = {x.snapshot_id for x in self._leases.values() if x.table_id == table_id and x.ends_at_ms > now_ms}
            free = {s.snapshot_id: s for s in snapshots if s.snapshot_id not in leased}
            made = {i: Mark(s, marks[i].token if token is None and i in marks else token) for i, s in free.items()}
            self._board.store.connection.executemany(
                "insert or replace into marks (table_id, snapshot_id, trace, token) values (?, ?, ?, ?)",
                [(table_id, i, m.snapshot.trace, m.token) for i, m in made.items()],
            )
            marks.update(made)
            return list(made)

    def unmark(self, table_id: TableId, snapshots: Iterable[SnapshotId]) -> None:
        """After they and their files are gone (snapshot ids do not come back), or when no round can take them out any
        more.
        """
        gone = list(snapshots)
        with self._board.lock, self._board.store.transaction():
            self._board.store.connection.executemany(
                "delete from marks where table_id = ? and snapshot_id = ?", [(table_id, s) for s in gone]
            )
            for snapshot_id in gone:
                self._marks.get(table_id, {}).pop(snapshot_id, None)

    def lift(self, table_id: TableId, marks: Iterable[Mark]) -> None:
        """Takes back marks that are still as they were seen: a round may have been granted a snapshot meanwhile."""
        with self._board.lock:
            now = self._marks.get(table_id, {})
            self.unmark(table_id, [m.snapshot.snapshot_id for m in marks if now.get(m.snapshot.snapshot_id) == m])

    def marked(self, table_id: TableId) -> list[Mark]:
        with self._board.lock:
            return [mark for _, mark in sorted(self._marks.get(table_id, {}).items())]

    def count(self) -> int:
        return len(self._leases)

    def _end(self, lease_s: float) -> int:
        return self._board.clock.now_ms() + int(1_000 * min(max(0.0, lease_s), self._board.options.read_lease_limit_s))

    def _save(self, lease: ReadLease) -> None:
        with self._board.store.transaction():
            self._board.store.connection.execute(
                "insert or replace into read_leases values (?, ?, ?, ?, ?)",
                (
                    lease.lease_id,
                    lease.table_id,
                    lease.snapshot_id,
                    lease.ends_at_ms,
                    json.dumps(lease.offsets.to_json()),
                ),
            )
