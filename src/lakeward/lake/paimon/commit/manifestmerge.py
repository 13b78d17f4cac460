# SPDX-License-Identifier: Apache-2.0
"""Which manifests a commit merges, so that neither their number nor a commit's cost grows with the history. Pure."""

from __future__ import annotations

from collections.abc import Sequence

FAN_IN = 8


def plan_merge(entries: Sequence[int], fan_in: int = FAN_IN) -> int:
    """`entries` of each manifest, oldest first -> index of the first one of those that become one, to the last;
    `len(entries)`: none do.

    A manifest's class is the power of the fan-in that its entries reach. The youngest are merged once together they
    reach a class above each of them: every merge lifts every entry it writes, so an entry is written as often as there
    are classes."""
    start, classes = len(entries), [_class(n, fan_in) for n in entries]
    for power in sorted(set(classes)):
        first = next((at + 1 for at in reversed(range(len(classes))) if classes[at] > power), 0)
        if len(entries) - first > 1 and sum(entries[first:]) >= fan_in ** (power + 1):
            start = first
    return start


def _class(entries: int, fan_in: int) -> int:
    power = 0
    while fan_in ** (power + 1) <= entries:
        power += 1
    return power
