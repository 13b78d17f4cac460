# SPDX-License-Identifier: Apache-2.0
"""Freshness arithmetic: deadline, slack and what is feasible, as pure functions over milliseconds."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.errors import InvalidRequest


@dataclass(frozen=True, kw_only=True)
class Freshness:
    """The longest a row may wait before the lake shows it."""

    target_ms: int

    def __post_init__(self) -> None:
        if self.target_ms <= 0:
            raise InvalidRequest(what="table.datalake.freshness", reason=f"{self.target_ms} ms is not above 0")

    def deadline_ms(self, oldest_waiting_at_ms: int) -> int:
        return oldest_waiting_at_ms + self.target_ms

    def is_feasible(self, round_ms: float) -> bool:
        """A row that arrives as a round freezes its ranges waits for that round and the next."""
        return 2 * round_ms <= self.target_ms

    def best_lag_ms(self, round_ms: float) -> float:
        """The lowest peak lag that any schedule can reach with rounds of this length."""
        return max(self.target_ms, 2 * round_ms)


def slack_ms(deadline_ms: float, now_ms: float, expected_round_ms: float) -> float:
    """How long a round may still wait before it must start. Negative: it is late already."""
    return deadline_ms - now_ms - expected_round_ms
