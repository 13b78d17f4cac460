# SPDX-License-Identifier: Apache-2.0
"""Who reads which KV snapshot, for how long. Kept in a file: a restart gives every lease its full time again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from lakeward.hot.embedded.log.durable import write_whole
from lakeward.model import Clock


@dataclass(frozen=True)
class SnapshotLease:
    holder: str
    snapshot_id: str
    lease_s: float
    expires_at: float
    """On the monotonic clock of this process."""


class SnapshotLeases:
    """Leases of one bucket's snapshots, one per holder. Not thread-safe: `BucketSnapshots` holds its lock."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._leases: dict[str, SnapshotLease] = {}
        if path.exists():
            for holder, (snapshot_id, lease_s) in json.loads(path.read_bytes()).items():
                self._arm(holder, snapshot_id, lease_s)

    def find(self, holder: str) -> SnapshotLease | None:
        return self._live().get(holder)

    def take(self, holder: str, snapshot_id: str, lease_s: float) -> None:
        """Durable when it returns; a holder's earlier lease is replaced."""
        self._arm(holder, snapshot_id, lease_s)
        self._save()

    def release(self, holder: str) -> bool:
        """Whether there was one."""
        was_held = self._leases.pop(holder, None) is not None
        if was_held:
            self._save()
        return was_held

    def leased(self) -> set[str]:
        """Snapshots that somebody holds."""
        return {lease.snapshot_id for lease in self._live().values()}

    def _arm(self, holder: str, snapshot_id: str, lease_s: float) -> None:
        self._leases[holder] = SnapshotLease(holder, snapshot_id, lease_s, self._clock.monotonic() + lease_s)

    def _live(self) -> dict[str, SnapshotLease]:
        now = self._clock.monotonic()
        self._leases = {h: lease for h, lease in self._leases.items() if lease.expires_at > now}
        return self._leases

    def _save(self) -> None:
        body = {h: [lease.snapshot_id, lease.lease_s] for h, lease in self._live().items()}
        write_whole(self._path, json.dumps(body).encode())
