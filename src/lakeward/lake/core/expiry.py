# SPDX-License-Identifier: Apache-2.0
"""Which snapshots of a table may go: one rule for every format."""

from __future__ import annotations

from typing import Any

from lakeward.lake.core.log import G, SnapshotLog
from lakeward.model import ExpiringSnapshot, SnapshotId


def plan_expiry(
    log: SnapshotLog[G, Any, Any], ground: G, now_ms: int, coming: int = 0, most: int | None = None
) -> list[ExpiringSnapshot]:
    """Beyond age and number, oldest first; looks at no more snapshots than it needs. `coming`: those that a commit
    adds. `most`: so many at most."""
    limit, old = log.limit(ground), list[SnapshotId]()
    for snapshot_id, superseded_at_ms in log.superseded(ground, max(1, limit.min_kept - coming)):
        if superseded_at_ms >= now_ms - limit.max_age_ms:
            break
        old.append(snapshot_id)
    retained = log.protected(ground) if old else ()
    return [log.expiring(ground, s) for s in [s for s in old if s not in retained][:most]]
