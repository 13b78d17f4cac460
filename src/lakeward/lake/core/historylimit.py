# SPDX-License-Identifier: Apache-2.0
"""How long a table's snapshots are kept: one default history for every format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
        age, kept = properties.get(prefix + MAX_AGE_KEY, ""), properties.get(prefix + MIN_KEPT_KEY, "")
        return cls(int(age) if age.isdigit() else _OLD_MAX_AGE_MS, int(kept) if kept.isdigit() else 1)


def new_history(prefix: str = "lakeward.") -> dict[str, str]:
    """What a new table is given."""
    return {f"{prefix}{MAX_AGE_KEY}": str(MAX_AGE_MS)}
