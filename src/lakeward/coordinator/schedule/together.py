# SPDX-License-Identifier: Apache-2.0
"""Which sides of a table start with one that starts now, so that the log is read once for all. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakeward.coordinator.schedule.load import PoolLoad, Row
from lakeward.coordinator.schedule.planner import plan_latest_starts, spares_slot

EARLY_SHARE = 0.2
"""Of its own freshness at most: a side that always started so much earlier would have a quarter more rounds."""


def plan_joins(load: PoolLoad, lead: str, others: Sequence[str], chosen: Sequence[str]) -> list[str]:
    """Those of `others`, sides of the same table that wait for a round, which start now beside `lead`: the slots can do
    without them, the lead stays in time with all of their work besides its own, and either they would start soon, or
    they want rounds as often as the lead does, so that from here on all of them are due together. `chosen`: all that
    start now, the lead among them."""
    rows = {row.key: row for row in load.rows if not row.demand.suspect}
    starts, first = plan_latest_starts(load), rows.get(lead)
    work_ms = first.round_ms if first is not None else 0.0
    joined = list[str]()
    ends = [load.now_ms + d.round_ms for d in load.demands if d.key in chosen]
    for row in sorted((rows[key] for key in others if key in rows), key=lambda r: starts[r.key]):
        in_time = first is None or load.now_ms + work_ms + row.round_ms <= _deadline_ms(first)
        rest = replace(load, demands=[d for d in load.demands if d.key not in (*chosen, *joined, row.key)])
        if in_time and _is_near(load, row, first, starts[row.key]) and spares_slot(rest, row.round_ms, ends):
            joined.append(row.key)
            work_ms += row.round_ms
            ends.append(load.now_ms + work_ms)
    return joined


def _is_near(load: PoolLoad, row: Row, lead: Row | None, start_ms: float) -> bool:
    freshness = row.demand.freshness_ms
    if lead is not None and freshness <= (1 + EARLY_SHARE) * lead.demand.freshness_ms:
        return True
    return start_ms - load.now_ms <= EARLY_SHARE * freshness


def _deadline_ms(row: Row) -> float:
    """Its own; the row's is that of the lowest lag that it could have."""
    deadline = row.demand.deadline_ms
    return row.deadline_ms if deadline is None else deadline
