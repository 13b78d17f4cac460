# SPDX-License-Identifier: Apache-2.0
"""Waiting for a lake that is away: what is waited for shows, and the wait has an end."""

from __future__ import annotations

import pytest

from lakeward.errors import LakeUnavailable
from lakeward.tiering.work.backoff import LAKE_PATIENCE_S, patiently
from lakeward.tiering.work.control import RoundControl
from lakeward_testing.clock import ManualClock


def test_what_is_waited_for_shows_until_there_is_an_answer() -> None:
    control, seen = RoundControl(), list[str]()

    def call() -> int:
        seen.append(control.progress.trouble)
        if len(seen) < 3:
            raise LakeUnavailable(lake="finance", what="list", reason="gone")
        return len(seen)

    assert patiently(call, clock=ManualClock(), control=control, server_wait_s=600) == 3
    assert ["finance" in words for words in seen] == [False, True, True]
    assert control.progress.trouble == ""


def test_a_lake_that_stays_away_ends_the_wait() -> None:
    clock = ManualClock()

    def call() -> None:
        clock.advance(LAKE_PATIENCE_S)
        raise LakeUnavailable(lake="finance", what="list", reason="gone")

    with pytest.raises(LakeUnavailable):
        patiently(call, clock=clock, control=RoundControl(), server_wait_s=600)
