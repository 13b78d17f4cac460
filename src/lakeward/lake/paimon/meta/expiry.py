# SPDX-License-Identifier: Apache-2.0
"""Which snapshots of a Paimon table may go."""

from __future__ import annotations

import json
from collections.abc import Mapping

from lakeward.lake.core.historylimit import MAX_AGE_KEY, MAX_AGE_MS, MIN_KEPT_KEY
from lakeward.lake.paimon.meta.history import PaimonHistory, PaimonSnapshot
from lakeward.model.expiry import ExpiringSnapshot

AGE_KEY, KEEP_KEY = MAX_AGE_KEY, MIN_KEPT_KEY
_DEFAULTS = {AGE_KEY: MAX_AGE_MS, KEEP_KEY: 1}


def plan_expiry(
    history: PaimonHistory, options: Mapping[str, str], now_ms: int, coming: int = 0
) -> list[ExpiringSnapshot]:
    """Beyond age, which counts from the next snapshot on, and number, oldest first; never the head, nor anything from
    our newest snapshot on. `coming`: snapshots that a commit adds beside it."""
    kept = max(1, _number(options, KEEP_KEY) - coming)
    oldest = now_ms - _number(options, AGE_KEY)
    needed = protected(history)
    spare = [n for n in history.numbers[:-kept] if n not in needed]
    found = []
    for number in spare:
        following = history.find(next(n for n in history.numbers if n > number))
        snapshot = history.find(number)
        if snapshot is None or following is None or int(following.body["timeMillis"]) >= oldest:
            break
        found.append(ExpiringSnapshot(snapshot_id=snapshot.id, trace=_trace(snapshot)))
    return found


def protected(history: PaimonHistory) -> set[int]:
    """The head, our newest snapshot and those between: reconcile walks over them."""
    newest = history.newest_ours()
    first = history.numbers[-1] if history.numbers else 0
    first = min(first, newest.number) if newest is not None else first
    marked = {history.mark.number} if history.mark is not None else set()
    return {n for n in history.numbers if n >= first} | marked


def expiring(snapshot: PaimonSnapshot) -> ExpiringSnapshot:
    return ExpiringSnapshot(snapshot_id=snapshot.id, trace=_trace(snapshot))


def _trace(snapshot: PaimonSnapshot) -> str:
    return json.dumps(list(snapshot.lists))


def _number(options: Mapping[str, str], key: str) -> int:
    text = options.get(key, "")
    return int(text) if text.isdigit() else _DEFAULTS[key]
