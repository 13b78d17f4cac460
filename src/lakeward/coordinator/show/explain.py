# SPDX-License-Identifier: Apache-2.0
"""Explain-my-lag: which part of a table's lag now is what. The arithmetic is pure; the side gives the times."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.coordinator.state.record import LakeSide
from lakeward.model import TableState
from lakeward.protocol.views import LagExplanation, RoundStatus

_S = TableState


@dataclass(frozen=True, kw_only=True)
class LagTimes:
    """When what began, in wall milliseconds. None: it has not."""

    now_ms: int
    oldest_ms: int
    queued_ms: int | None = None
    handed_ms: int | None = None
    failed_until_ms: int | None = None


def split_lag(times: LagTimes) -> dict[str, int]:
    """The lag cut at the moments that mattered: on time (not due yet), back-off, queue, round. The parts add up to the
    lag.
    """
    queued = times.queued_ms if times.queued_ms is not None else times.now_ms
    handed = times.handed_ms if times.handed_ms is not None else times.now_ms
    parts = {
        "not_due": max(0, min(queued, handed, times.now_ms) - times.oldest_ms),
        "queue": max(0, min(handed, times.now_ms) - max(queued, times.oldest_ms)),
        "round": max(0, times.now_ms - max(handed, times.oldest_ms)),
    }
    if times.failed_until_ms is not None:
        parts["back_off"] = parts.pop("not_due")
    return parts


def explain(side: LakeSide, now_ms: int, last: RoundStatus | None, served: bool) -> LagExplanation:
    oldest = side.waiting.oldest_at_ms
    if oldest is None:
        words = "nothing waits: the lake has everything that was acknowledged"
        return LagExplanation(
            path=side.info.path, side=side.name, lag_ms=0, parts_ms={}, words=words, committed=side.committed
        )
    lease = side.tier.lease
    times = LagTimes(
        now_ms=now_ms,
        oldest_ms=min(oldest, now_ms),
        queued_ms=side.pending_since_ms if lease is None else lease.granted_at_ms - lease.waited_ms,
        handed_ms=None if lease is None else lease.granted_at_ms,
        failed_until_ms=side.tier.retry_at_ms if side.state is _S.FAILED else None,
    )
    parts = split_lag(times)
    return LagExplanation(
        path=side.info.path,
        side=side.name,
        lag_ms=now_ms - times.oldest_ms,
        parts_ms={**parts, **_last_round(last)},
        words=_words(side, parts, now_ms, last, served),
        committed=side.committed,
    )


def _last_round(last: RoundStatus | None) -> dict[str, int]:
    if last is None:
        return {}
    phases = last.phases
    return {
        f"last_{name}": int(1_000 * seconds)
        for name, seconds in (
            ("wait", phases.wait_s),
            ("plan", phases.plan_s),
            ("write", phases.write_s),
            ("slowest_split", phases.slowest_split_s),
            ("resolve", phases.resolve_s),
            ("commit", phases.commit_s),
        )
    }


def _words(side: LakeSide, parts: dict[str, int], now_ms: int, last: RoundStatus | None, served: bool) -> str:
    text = f"{side.waiting.words}; " + _state_words(side, parts, now_ms, served)
    if last is not None and last.outcome != "failed":
        slow = max(("wait", "plan", "write", "resolve", "commit"), key=lambda n: getattr(last.phases, f"{n}_s"))
        text += f"; the last round took {last.phases.total_s:.1f} s, most of it {slow}"
        if last.read_with:
            text += f", and read the log together with {', '.join(map(str, last.read_with))}"
    return text


def _state_words(side: LakeSide, parts: dict[str, int], now_ms: int, served: bool) -> str:
    state = side.state
    if state in (_S.PAUSED, _S.QUARANTINED, _S.DISABLED):
        return f"the table is {state}: {side.broken or side.reason or 'by call'}"
    if side.lake_error is not None and not side.lake_seen:
        return f"its lake has not been read since the server started: {side.lake_error.get('message')}"
    if not served:
        return f"no live job serves pool {side.options.pool!r}"
    if (lease := side.tier.lease) is not None:
        progress = lease.progress
        done = f"{progress.splits_done} of {progress.splits_total} splits"
        words = f"a round of job {lease.job} has run for {parts['round'] / 1_000:.1f} s ({progress.phase}, {done})"
        return f"{words} and goes on once this is over: {progress.trouble}" if progress.trouble else words
    if state is _S.FAILED:
        wait = max(0, (side.tier.retry_at_ms or now_ms) - now_ms) / 1_000
        failures = side.tier.failures_in_a_row
        return f"the last {failures} rounds failed ({side.reason}); the next try is in {wait:.1f} s"
    if state is _S.PENDING:
        return f"it has waited {parts['queue'] / 1_000:.1f} s for a free slot"
    return "its round is not due yet: it starts as late as still keeps the freshness"
