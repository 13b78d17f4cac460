# SPDX-License-Identifier: Apache-2.0
"""Which snapshots of a Hudi table may go."""

from __future__ import annotations

from collections.abc import Set
from itertools import pairwise

from lakeward.lake.core.expiry import HistoryLimit
from lakeward.lake.hudi.commit.reconcile import INSTANT_KEY, HudiGround
from lakeward.lake.hudi.meta.timeline import HudiInstant
from lakeward.model.expiry import ExpiringSnapshot

KEPT_INSTANTS = 30
"""As Hudi's own archive leaves by default."""


def plan_expiry(ground: HudiGround, expired: Set[str], now_ms: int, coming: int = 0) -> list[ExpiringSnapshot]:
    """Beyond age, which counts from the next snapshot on, and number, oldest first; never the head or our newest.
    `coming`: snapshots that a commit adds beside it."""
    limit = HistoryLimit.of(ground.properties)
    oldest_ms = now_ms - limit.max_age_ms
    instants = [i for i in ground.timeline.snapshots if i.requested not in expired]
    kept = protected(ground)
    spare = len(instants) - max(1, limit.min_kept - coming)
    old = [i for i, follower in list(pairwise(instants))[:spare] if follower.completed_at_ms < oldest_ms]
    return [ExpiringSnapshot(snapshot_id=i.id) for i in old if i.requested not in kept]


def protected(ground: HudiGround) -> set[str]:
    """The head, our newest, and what foreign commits came since: the next round looks for their rows."""
    head, newest = ground.timeline.head, ground.newest_ours().get(INSTANT_KEY)
    kept = {i.requested for i in ground.since_ours()}
    return kept | {v for v in (None if head is None else head.requested, newest) if v}


def plan_archive(ground: HudiGround, expired: Set[str], keep: int = KEPT_INSTANTS) -> list[HudiInstant]:
    """The oldest instants that nobody asks for any more. All that is older than the timeline's first instant counts as
    completed: so none goes that was asked for after one that stays."""
    timeline, kept = ground.timeline, protected(ground)
    going: list[HudiInstant] = []
    for instant in timeline.instants[: max(0, len(timeline.instants) - keep)]:
        is_snapshot = instant in timeline.snapshots
        if instant.requested in kept or (is_snapshot and instant.requested not in expired):
            break
        going.append(instant)
    while going:
        left = [i.requested for i in timeline.instants[len(going) :]]
        if max(i.requested for i in going) < min((*left, *timeline.pending), default=""):
            return going
        going.pop()
    return []
