# SPDX-License-Identifier: Apache-2.0
"""Admission and what-if: would every table keep its freshness with so many slots? Answered from measured durations by
the simulator, which runs the very planner."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace

from lakeward.coordinator.schedule.schedule import Schedule
from lakeward.coordinator.schedule.simulator import LIMIT_S, Budget, SimResult, SimTable, lakeward, simulate
from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.estimate import unknown_round_ms
from lakeward.errors import InvalidRequest
from lakeward.protocol.operate import AdmissionAnswer, AdmissionQuery, AdmissionRow

MOST_SLOTS = 64
ROUNDS_BUDGET = 3_000
"""Rounds simulated per question."""


class Forecast:
    def __init__(self, board: Board, schedule: Schedule) -> None:
        self._board, self._schedule = board, schedule

    def answer(self, query: AdmissionQuery, budget: Budget | None = None) -> AdmissionAnswer:
        """Raises `InvalidRequest` for numbers that make no sense. A spent budget makes the answer a partial one."""
        tables = self._tables(query)
        with self._board.lock:
            live = sum(j.slots for j in self._schedule.live_jobs(query.pool))
        slots = query.slots if query.slots is not None else max(1, live)
        if not 1 <= slots <= 10_000:
            raise InvalidRequest(what="slots", reason=f"{slots} is not between 1 and 10,000")
        window_ms = None
        if query.replay_ms:
            tables, window_ms = self._replayed(tables, query.replay_ms)
        return forecast(
            tables,
            slots,
            window_ms=window_ms,
            margin_share=self._board.options.margin_share,
            margin_ms=1_000 * self._board.options.margin_s,
            budget=budget or Budget(LIMIT_S),
        )

    def _replayed(self, tables: Sequence[SimTable], replay_ms: int) -> tuple[list[SimTable], float]:
        """The tables with the arrivals of the busiest stretch of that time, as long as the budget of rounds allows."""
        with self._board.lock:
            now = self._board.clock.now_ms()
            labels = {(s.table_id, s.name): s.label for s in self._board.sides()}
            times = self._board.store.rounds.load_times(now - replay_ms)
        rounds: dict[str, list[tuple[int, int]]] = {}
        for table_id, side, began, ended in times:
            if (label := labels.get((table_id, side))) is not None:
                rounds.setdefault(label, []).append((began, ended))
        if not rounds:
            reason = "no table had a round with rows in that time: ask without it"
            raise InvalidRequest(what="replay", reason=reason)
        window_ms = min(float(replay_ms), max(ROUNDS_BUDGET / _rate(tables), 3 * max(t.freshness_ms for t in tables)))
        start = busiest(sorted(began for each in rounds.values() for began, _ in each), window_ms)
        spans = {t.name: busy_spans(rounds.get(t.name, ()), t.freshness_ms) for t in tables}
        return [_within(t, spans[t.name] if t.name in rounds else None, start, window_ms) for t in tables], window_ms

    def _tables(self, query: AdmissionQuery) -> list[SimTable]:
        """Measured tables of the pool with what the question changes, and those that exist only in the question. One
        that never had a round is left out unless it is asked about: a guess for each of many empty ones would fill any
        number of slots."""
        with self._board.lock:
            enabled_sides = {
                s.label: s for s in self._board.sides() if s.options.enabled and s.options.pool == query.pool
            }
            measured = [name for name, side in enabled_sides.items() if side.tier.estimate.samples]
            names = {**dict.fromkeys(measured), **dict.fromkeys(query.freshness_ms), **dict.fromkeys(query.round_ms)}
            tables = []
            for name in names:
                side = enabled_sides.get(name)
                freshness = query.freshness_ms.get(name, side.options.freshness_ms if side else 180_000)
                unknown = unknown_round_ms(freshness)
                typical = side.tier.estimate.typical_ms(unknown) if side else unknown
                round_ms = query.round_ms.get(name, typical)
                if freshness <= 0 or round_ms <= 0:
                    raise InvalidRequest(what=f"admission of {name}", reason="freshness and duration are above 0 ms")
                priority = side.options.priority if side else 0
                tables.append(SimTable(name=name, freshness_ms=freshness, round_ms=round_ms, priority=priority))
        return tables


def busy_spans(rounds: Sequence[tuple[int, int]], freshness_ms: float) -> list[tuple[float, float]]:
    """When rows arrived, by rounds in order of time: a round's rows came since the round before it began, and at most
    one freshness earlier than its own end. Spans that meet are one."""
    spans: list[tuple[float, float]] = []
    for began, ended in rounds:
        first = max(ended - freshness_ms, spans[-1][1] if spans else 0.0)
        if spans and first <= spans[-1][1]:
            spans[-1] = (spans[-1][0], float(began))
        elif began > first:
            spans.append((float(first), float(began)))
        else:
            spans.append((float(began), float(began)))
    return spans


def busiest(starts: Sequence[int], window_ms: float) -> int:
    """The beginning of the stretch of that length in which most rounds began; `starts` in order."""
    return max(starts, key=lambda at: bisect_right(starts, at + window_ms) - bisect_left(starts, at))


def _within(
    table: SimTable, spans: Sequence[tuple[float, float]] | None, start_ms: float, window_ms: float
) -> SimTable:
    """A table without rounds of its own, as one that does not exist yet, gets rows all the time."""
    if spans is None:
        return table
    cut = [(max(0.0, low - start_ms), high - start_ms) for low, high in spans]
    return replace(table, busy_ms=tuple((low, high) for low, high in cut if high >= 0 and low <= window_ms))


def _rate(tables: Sequence[SimTable]) -> float:
    """Rounds in a millisecond, where rows arrive all the time."""
    return sum(1 / max(t.freshness_ms - t.round_ms, t.round_ms) for t in tables)


def forecast(
    tables: Sequence[SimTable],
    slots: int,
    *,
    margin_share: float,
    margin_ms: float,
    budget: Budget,
    window_ms: float | None = None,
) -> AdmissionAnswer:
    """`window_ms`: how long to simulate; None: by the tables."""

    def run(slots: int) -> SimResult:
        return _run(tables, slots, margin_share, margin_ms, budget, window_ms)

    result = run(slots)
    broken = [t for t in tables if t.best_ratio > 1 or t.name in result.missed]
    needed = None if not result.missed else _slots_needed(run, slots, len(tables))
    is_complete = not budget.is_spent
    return AdmissionAnswer(
        feasible=not broken,
        slots=slots,
        utilisation=sum(_share(t) for t in tables) / slots,
        rows=tuple(_row(r.table, r.worst_lag_ms, r.misses) for r in result.runs),
        words=_words(tables, slots, result, needed, is_complete=is_complete),
        slots_needed=needed if result.missed else slots if is_complete else None,
        complete=is_complete,
        simulated_ms=int(result.elapsed_ms),
    )


def _run(
    tables: Sequence[SimTable],
    slots: int,
    margin_share: float,
    margin_ms: float,
    budget: Budget,
    window_ms: float | None = None,
) -> SimResult:
    """Long enough for every table to have three rounds, as far as the budget goes."""
    if not tables:
        return SimResult(runs=(), rounds=0, elapsed_ms=0, slots=slots)
    longest = 3 * max(max(t.freshness_ms, 2 * t.round_ms) for t in tables)
    spread = [SimTable(**{**vars(t), "first_ms": t.freshness_ms * i / len(tables)}) for i, t in enumerate(tables)]
    return simulate(
        spread,
        slots,
        lakeward,
        until_ms=window_ms or min(longest, ROUNDS_BUDGET / _rate(tables)),
        margin_share=margin_share,
        margin_ms=margin_ms,
        budget=budget,
    )


def _slots_needed(run: Callable[[int], SimResult], above: int, tables: int) -> int | None:
    """The smallest number of slots without a miss, found by halving; None beyond the limit. Where the time is over, the
    smallest that was tried whole and had none."""
    low, high = above, min(MOST_SLOTS, max(above + 1, tables))
    if high <= low or _fails(run(high)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if _fails(run(middle)):
            low = middle
        else:
            high = middle
    return high


def _fails(result: SimResult) -> bool:
    return bool(result.missed) or result.is_partial


def _share(table: SimTable) -> float:
    return table.round_ms / max(table.freshness_ms - table.round_ms, table.round_ms)


def _row(table: SimTable, worst_ms: float, misses: int) -> AdmissionRow:
    return AdmissionRow(
        table=table.name,
        freshness_ms=int(table.freshness_ms),
        round_ms=int(table.round_ms),
        worst_lag_ms=int(worst_ms),
        feasible=table.best_ratio <= 1,
        misses=misses,
    )


def _words(tables: Sequence[SimTable], slots: int, result: SimResult, needed: int | None, *, is_complete: bool) -> str:
    alone = [t.name for t in tables if t.best_ratio > 1]
    text = (
        "every table keeps its freshness"
        if not result.missed
        else f"{', '.join(sorted(result.missed)[:10])} would be late"
    )
    text = f"with {slots} slots {text}"
    if result.is_partial and not result.missed:
        text = f"with {slots} slots no table was late in the part that was simulated"
    if needed is not None:
        text += f"; {needed} slots would do"
    elif result.missed and is_complete:
        text += "; more slots do not help enough"
    if not is_complete:
        text += f"; a partial answer: the time for it was over after {result.elapsed_ms / 1000:,.0f} simulated seconds"
    if alone:
        text += (
            f"; rounds of {', '.join(sorted(alone)[:10])} take more than half their freshness, which no number of "
            f"slots mends"
        )
    return text
