# SPDX-License-Identifier: Apache-2.0
"""How long a table's next round will take: a robust estimate from earlier rounds that grows with the backlog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

SAMPLES_KEPT = 12
"""Enough for a stable median, few enough to follow a change within a dozen rounds."""

FEW = 4
USUAL_MS_PER_BYTE = 1 / 20_000
"""20 MB/s, until there are enough rounds to know better: about what one slow core writes."""

SMALL_BYTES = 16 * 2**20
"""Below that a round's duration has little to do with its bytes."""


@dataclass(frozen=True, kw_only=True)
class RoundSample:
    """One finished round: how long it took from hand-out to finish, and how much waited when it was handed out."""

    duration_ms: float
    backlog_bytes: int = 0


@dataclass(frozen=True)
class DurationEstimate:
    """The newest samples, oldest first. A value: `with_sample` gives another one."""

    samples: tuple[RoundSample, ...] = ()

    def with_sample(self, sample: RoundSample) -> DurationEstimate:
        return DurationEstimate((*self.samples[-(SAMPLES_KEPT - 1) :], sample))

    def round_ms(self, backlog_bytes: int, unknown_ms: float) -> float:
        """Expected duration with that backlog; `unknown_ms` before the first round.

        A line through the samples by the median of slopes (one wild round does not tilt it), raised so that all but the
        worst quarter of the recent rounds would have been at or below it; beyond the largest backlog seen it grows at
        most in proportion."""
        if not self.samples:
            return unknown_ms
        intercept, slope = self._line
        worst, largest = self._most
        return min(intercept + slope * backlog_bytes, worst * max(1.0, backlog_bytes / largest))

    @cached_property
    def _line(self) -> tuple[float, float]:
        """(milliseconds, milliseconds per byte); fitted once per set of samples, since it is
        asked for at every tick.
        """
        slope = _median_slope(self.samples)
        rests = sorted(s.duration_ms - slope * s.backlog_bytes for s in self.samples)
        return max(0.0, rests[_upper_index(len(rests))]), slope

    @cached_property
    def _most(self) -> tuple[float, int]:
        """(the longest duration, the largest backlog)."""
        return max(s.duration_ms for s in self.samples), max(SMALL_BYTES, *(s.backlog_bytes for s in self.samples))

    def typical_ms(self, unknown_ms: float) -> float:
        return median(s.duration_ms for s in self.samples) if self.samples else unknown_ms


def _upper_index(count: int) -> int:
    """With few samples the worst one, later the third quartile."""
    return count - 1 if count < 4 else (3 * count) // 4


def _median_slope(samples: Sequence[RoundSample]) -> float:
    """Milliseconds per byte, never negative. Few rounds say little of what bytes cost: a first round is slow for other
    reasons.
    """
    slopes = [
        (b.duration_ms - a.duration_ms) / (b.backlog_bytes - a.backlog_bytes)
        for i, a in enumerate(samples)
        for b in samples[i + 1 :]
        if abs(b.backlog_bytes - a.backlog_bytes) > 0.05 * max(a.backlog_bytes, b.backlog_bytes)
    ]
    return max(0.0, median(slopes)) if len(samples) >= FEW and slopes else USUAL_MS_PER_BYTE


def unknown_round_ms(freshness_ms: int) -> float:
    """Before the first round: a quarter of the freshness, at most 30 s; starting early costs little."""
    return min(30_000.0, freshness_ms / 4)
