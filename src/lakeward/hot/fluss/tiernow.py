# SPDX-License-Identifier: Apache-2.0
"""Brings what a table holds now into the lake at once: by whichever job asks Fluss for it first, or by the caller where
none does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from lakeward.errors import TimedOut
from lakeward.hot.fluss.coordinatorclient import FlussCoordinatorClient
from lakeward.hot.fluss.handout.standing import Standing
from lakeward.hot.fluss.lakeoptions import check_tiered
from lakeward.hot.fluss.plugin import FlussPlugin
from lakeward.hot.fluss.supported import check_supported
from lakeward.model import OffsetMap, TablePath
from lakeward.protocol.heartbeat import Committed, HandedOut

POLL_S = 0.1
PATIENCE_S = 3.0
"""Our job asks twice a second. The Flink job asks every 30 s by default; we do not wait for it."""


@dataclass(frozen=True, kw_only=True)
class InLake:
    """Everything that was acknowledged when the call came is there. `ran_here`: no job took the table. `was_there`:
    nothing was left to do."""

    path: TablePath
    committed: OffsetMap
    took_ms: int
    ran_here: bool = False
    was_there: bool = False


def tier_now(
    plugin: FlussPlugin, path: TablePath, limit_s: float, run_here: Callable[[HandedOut], object] | None = None
) -> InLake:
    """Blocks. `run_here` runs the round of a table that was due for a while and that no job asked for. Raises
    `TimedOut`, `InvalidTable` for one that is not tiered, and what `run_here` raises."""
    table, coordinator, began = plugin.store().load_table(path), plugin.coordinator(), time.monotonic()
    check_tiered(table)
    check_supported(table)
    ends = OffsetMap({b: bounds.end for b, bounds in plugin.store().freeze(table).items() if bounds.end})
    due_since: float | None = None
    ran_here, was_there, standing = False, True, Standing.WAITS
    watch = coordinator.watch(table)
    while True:
        lake_state = _in_lake(coordinator, path, is_slow=time.monotonic() - began > PATIENCE_S)
        if not ends.regressions(committed := OffsetMap(lake_state.offsets)):
            break
        was_there = False
        now, standing = time.monotonic(), watch.make_due(lake_state.token)
        if now - began > limit_s:
            raise TimedOut(what=f"tier-now of {path}", limit_s=limit_s, state=standing)
        due_since = None if standing is Standing.IN_WORK else due_since or now
        is_alone = due_since is not None and now - due_since >= PATIENCE_S
        if is_alone and run_here is not None and (handed := coordinator.take(path)) is not None:
            run_here(handed)
            ran_here, due_since = True, None
        else:
            time.sleep(POLL_S)
    if was_there:
        _in_lake(coordinator, path, is_slow=True)
    took_ms = int(1_000 * (time.monotonic() - began))
    return InLake(path=path, committed=committed, took_ms=took_ms, ran_here=ran_here, was_there=was_there)


def _in_lake(coordinator: FlussCoordinatorClient, path: TablePath, *, is_slow: bool) -> Committed:
    """Fluss's answer is enough while a job is at work. If that takes long, the lake is read too, which takes a second
    and raises the error that keeps jobs from the table."""
    return coordinator.committed(path) if is_slow else coordinator.known(path)
