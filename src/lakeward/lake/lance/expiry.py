# SPDX-License-Identifier: Apache-2.0
"""Which snapshots of a Lance table may go."""

from __future__ import annotations

from itertools import pairwise

from lakeward.lake.lance.reconcile import LanceGround
from lakeward.lake.lance.table import LanceTable
from lakeward.model.expiry import ExpiringSnapshot

MAX_AGE_KEY = "lakeward.history.expire.max-snapshot-age-ms"
MIN_KEPT_KEY = "lakeward.history.expire.min-snapshots-to-keep"
MAX_AGE_MS = 5 * 24 * 3600 * 1000
"""Five days, as Iceberg's default."""


def plan_expiry(table: LanceTable, ground: LanceGround, now_ms: int, coming: int = 0) -> list[ExpiringSnapshot]:
    """Beyond age, which counts from the next snapshot on, and number, oldest first; never the head, our newest, or what
    a tag or a branch names. `coming`: snapshots that a commit adds beside it."""
    config = ground.config
    oldest_ms = now_ms - int(config.get(MAX_AGE_KEY, MAX_AGE_MS))
    snapshots = ground.snapshots(table)
    spare = len(snapshots) - max(1, int(config.get(MIN_KEPT_KEY, "1")) - coming)
    old = [v for v, follower in list(pairwise(snapshots))[:spare] if follower.committed_at_ms < oldest_ms]
    kept = kept_versions(table, ground) if old else set()
    return [ExpiringSnapshot(snapshot_id=v.snapshot_id) for v in old if v.version not in kept]


def kept_versions(table: LanceTable, ground: LanceGround) -> set[int]:
    """Those that stay whatever is asked."""
    own = {v.version for v in (ground.head, ground.own) if v is not None}
    return {ground.version, *own, *table.referenced(ground.versions)}
