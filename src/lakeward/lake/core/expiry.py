# SPDX-License-Identifier: Apache-2.0
"""Which snapshots of a table may go: one rule and one default history for every format."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lakeward.lake.core.history import LogSnapshot
from lakeward.model.ids import SnapshotId

MAX_AGE_KEY = "history.expire.max-snapshot-age-ms"
MIN_KEPT_KEY = "history.expire.min-snapshots-to-keep"
MAX_AGE_MS = 30 * 60 * 1000
"""The default history of every format: half an hour, which is 180 snapshots with a round every 10 s. Each commit reads
or writes something for each snapshot that is kept, in every format; a reader without a lease has half an hour for its
query. Written to a table when it is made, so that it stays what it was when this default changes."""

_OLD_MAX_AGE_MS = 5 * 24 * 3600 * 1000
"""Of tables without the property, which versions before 0.2.0 made: nobody's history ends by an upgrade."""


@dataclass(frozen=True)
class HistoryLimit:
    """`max_age_ms` counts from the moment when the next snapshot took a snapshot's place."""

    max_age_ms: int = MAX_AGE_MS
    min_kept: int = 1

    @classmethod
    def of(cls, properties: Mapping[str, str], prefix: str = "lakeward.") -> HistoryLimit:
        """`prefix`: of the names under which a format keeps the two properties."""
        age, kept = properties.get(prefix + MAX_AGE_KEY), properties.get(prefix + MIN_KEPT_KEY)
        return cls(_OLD_MAX_AGE_MS if age is None else int(age), 1 if kept is None else int(kept))


def new_history(prefix: str = "lakeward.") -> dict[str, str]:
    """What a new table is given."""
    return {f"{prefix}{MAX_AGE_KEY}": str(MAX_AGE_MS)}


def plan_expiry(
    snapshots: Sequence[LogSnapshot],
    retention: HistoryLimit,
    protected: Callable[[], Collection[SnapshotId]],
    now_ms: int,
    coming: int = 0,
) -> list[SnapshotId]:
    """Beyond age and number. `snapshots`: the retained ones, oldest first. `coming`: snapshots that a commit adds.
    `protected`: those that stay whatever is asked; called only where some are old."""
    oldest_ms = now_ms - retention.max_age_ms
    spare = len(snapshots) - max(1, retention.min_kept - coming)
    old = [s for s, follower in list(pairwise(snapshots))[: max(0, spare)] if follower.committed_at_ms < oldest_ms]
    kept = protected() if old else ()
    return [s.snapshot_id for s in old if s.snapshot_id not in kept]
