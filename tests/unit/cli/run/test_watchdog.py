# SPDX-License-Identifier: Apache-2.0
"""A server that stopped answering is lost; one that recovers, or is slow for a while, is not."""

from __future__ import annotations

from lakeward.cli.run.watchdog import PATIENCE_S, PROBE_S, Watchdog
from lakeward_testing.clock import ManualClock


def test_patience() -> None:
    clock, answering = ManualClock(), False
    watchdog = Watchdog(lambda _: answering, clock)

    def lost_after(seconds: float) -> bool:
        lost = False
        for _ in range(round(seconds / PROBE_S)):
            clock.advance(PROBE_S)
            lost = lost or watchdog.is_lost()
        return lost

    assert not lost_after(100 * PATIENCE_S), "it recovers"
    answering = True
    assert not lost_after(PROBE_S)
    answering = False
    assert not lost_after(PATIENCE_S)
    answering = True
    assert not lost_after(PROBE_S)
    answering = False
    assert lost_after(PATIENCE_S + PROBE_S)
    watchdog.launched()
    assert not lost_after(100 * PATIENCE_S), "the next one recovers"
