# SPDX-License-Identifier: Apache-2.0
"""Which snapshots of a memory table may go."""

from __future__ import annotations

import json

from lakeward.lake.memory.table import MemoryTable, Snapshot
from lakeward.model.expiry import ExpiringSnapshot

MAX_AGE_KEY = "history.expire.max-snapshot-age-ms"
MIN_KEPT_KEY = "history.expire.min-snapshots-to-keep"
MAX_AGE_MS = 5 * 24 * 3600 * 1000
"""Five days, as Iceberg's default."""


def plan_expiry(table: MemoryTable, now_ms: int, coming: int = 0) -> list[ExpiringSnapshot]:
    """Beyond age, which counts from the next snapshot on, and number, oldest first; never main's head or the tag.
    `coming`: snapshots that a commit adds beside it.
    """
    oldest = now_ms - int(table.properties.get(MAX_AGE_KEY, MAX_AGE_MS))
    spare = sorted(table.snapshots)[: -max(1, int(table.properties.get(MIN_KEPT_KEY, "1")) - coming)]
    followed_ms = {s.parent: s.committed_at_ms for s in table.snapshots.values()}
    old = [s for s in map(table.snapshots.__getitem__, spare) if followed_ms.get(s.number, s.committed_at_ms) < oldest]
    return [_trace(s) for s in old if s.number not in (table.head, table.tag)]


def _trace(snapshot: Snapshot) -> ExpiringSnapshot:
    return ExpiringSnapshot(snapshot_id=snapshot.id, trace=json.dumps(sorted({*snapshot.data, *snapshot.deletes})))
