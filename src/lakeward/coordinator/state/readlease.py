# SPDX-License-Identifier: Apache-2.0
"""Read leases, and snapshots that are being removed."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.model import ExpiringSnapshot, LeaseId, OffsetMap, SideId, SnapshotId


@dataclass
class ReadLease:
    """A reader's lease. `offsets`: the first offset of each bucket's hot tail that the reader will request. Ends by
    wall time: the end is sent to readers and survives a restart."""

    lease_id: LeaseId
    side: SideId
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
