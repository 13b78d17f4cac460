# SPDX-License-Identifier: Apache-2.0
"""Which snapshots of a Hudi table stay, and which instants go to its archive."""

from __future__ import annotations

from collections.abc import Set

from lakeward.lake.hudi.commit.reconcile import INSTANT_KEY, HudiGround
from lakeward.lake.hudi.meta.timeline import HudiInstant

KEPT_INSTANTS = 30
"""As Hudi's own archive leaves by default."""


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
