# SPDX-License-Identifier: Apache-2.0
"""What a reader holds, and a snapshot that is on its way out."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.model.expiry import ExpiringSnapshot
from lakeward.model.ids import LeaseId, SnapshotId
from lakeward.model.offsets import OffsetMap
from lakeward.model.side import SideId


@dataclass
class ReadLease:
    """`offsets`: the first offset of each bucket's hot tail that the reader will ask for. Ends by wall time: it is told
    to readers and survives a restart."""

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
