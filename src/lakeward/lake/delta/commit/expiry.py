# SPDX-License-Identifier: Apache-2.0
"""Which snapshots of a Delta table may go."""

from __future__ import annotations

from itertools import pairwise

from lakeward.lake.delta.commit.reconcile import DeltaGround
from lakeward.lake.delta.meta.actions import VERSION_KEY
from lakeward.lake.delta.meta.log import DeltaLog
from lakeward.model.expiry import ExpiringSnapshot

MAX_AGE_KEY = "lakeward.history.expire.max-snapshot-age-ms"
MIN_KEPT_KEY = "lakeward.history.expire.min-snapshots-to-keep"
MAX_AGE_MS = 5 * 24 * 3600 * 1000
"""Five days, as Iceberg's default."""


def plan_expiry(log: DeltaLog, ground: DeltaGround, now_ms: int, coming: int = 0) -> list[ExpiringSnapshot]:
    """Beyond age, which counts from the next snapshot on, and number, oldest first; never the head or our newest.
    `coming`: snapshots that a commit adds beside it."""
    properties = ground.state.properties
    oldest_ms = now_ms - int(properties.get(MAX_AGE_KEY, MAX_AGE_MS))
    entries = log.snapshots(ground.listing)
    kept = {ground.head_id, ground.state.keys.get(VERSION_KEY)}
    spare = len(entries) - max(1, int(properties.get(MIN_KEPT_KEY, "1")) - coming)
    old = [e for e, follower in list(pairwise(entries))[:spare] if follower.committed_at_ms < oldest_ms]
    return [ExpiringSnapshot(snapshot_id=e.snapshot_id) for e in old if e.snapshot_id not in kept]
