# SPDX-License-Identifier: Apache-2.0
"""Which snapshots of a table may go: one rule for every format."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

from lakeward.lake.core.log import G, SnapshotLog
from lakeward.model.expiry import ExpiringSnapshot
from lakeward.model.ids import SnapshotId


def plan_expiry(log: SnapshotLog[G, Any, Any], ground: G, now_ms: int, coming: int = 0) -> list[ExpiringSnapshot]:
    """Beyond age and number, oldest first; looks at no more snapshots than it needs. `coming`: those that a commit
    adds."""
    limit, old = log.limit(ground), list[SnapshotId]()
    spare = log.count(ground) - max(1, limit.min_kept - coming)
    for snapshot, follower in islice(pairwise(log.oldest_first(ground)), max(0, spare)):
        if follower.committed_at_ms >= now_ms - limit.max_age_ms:
            break
        old.append(snapshot.snapshot_id)
    kept = log.protected(ground) if old else ()
    return [log.expiring(ground, s) for s in old if s not in kept]
