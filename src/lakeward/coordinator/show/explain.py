# SPDX-License-Identifier: Apache-2.0
"""Explain-my-lag: which part of a table's lag now is what. The arithmetic is pure; the record gives the times."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.coordinator.state.record import TableRecord
from lakeward.model.state import TableState
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


def explain(record: TableRecord, now_ms: int, last: RoundStatus | None, served: bool) -> LagExplanation:
    oldest = record.waiting.oldest_at_ms
    if oldest is None:
        words = "nothing waits: the lake has everything that was acknowledged"
        return LagExplanation(path=record.info.path, lag_ms=0, parts_ms={}, words=words, committed=record.committed)
    lease = record.lease
    times = LagTimes(
        now_ms=now_ms,
        oldest_ms=min(oldest, now_ms),
        queued_ms=record.pending_since_ms if lease is None else lease.granted_at_ms - lease.waited_ms,
        handed_ms=None if lease is None else lease.granted_at_ms,
        failed_until_ms=record.retry_at_ms if record.state is _S.FAILED else None,
    )
    parts = split_lag(times)
    return LagExplanation(
        path=record.info.path,
        lag_ms=now_ms - times.oldest_ms,
        parts_ms={**parts, **_last_round(last)},
        words=_words(record, parts, now_ms, last, served),
        committed=record.committed,
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


def _words(record: TableRecord, parts: dict[str, int], now_ms: int, last: RoundStatus | None, served: bool) -> str:
    text = f"{record.waiting.rows} rows wait; " + _state_words(record, parts, now_ms, served)
    if last is not None and last.outcome != "failed":
        slow = max(("wait", "plan", "write", "resolve", "commit"), key=lambda n: getattr(last.phases, f"{n}_s"))
        text += f"; the last round took {last.phases.total_s:.1f} s, most of it {slow}"
    return text


def _state_words(record: TableRecord, parts: dict[str, int], now_ms: int, served: bool) -> str:
    state = record.state
    if state in (_S.PAUSED, _S.QUARANTINED, _S.DISABLED):
        return f"the table is {state}: {record.broken or record.reason or 'by call'}"
    if record.lake_error is not None and not record.lake_seen:
        return f"its lake has not been read since the server started: {record.lake_error.get('message')}"
    if not served:
        return f"no live job serves pool {record.options.pool!r}"
    if record.lease is not None:
        progress = record.lease.progress
        done = f"{progress.splits_done} of {progress.splits_total} splits"
        return (
            f"a round of job {record.lease.job} has run for {parts['round'] / 1_000:.1f} s ({progress.phase}, {done})"
        )
    if state is _S.FAILED:
        wait = max(0, (record.retry_at_ms or now_ms) - now_ms) / 1_000
        return f"the last {record.failures_in_a_row} rounds failed ({record.reason}); the next try is in {wait:.1f} s"
    if state is _S.PENDING:
        return f"it has waited {parts['queue'] / 1_000:.1f} s for a free slot"
    return "its round is not due yet: it starts as late as still keeps the freshness"
