# SPDX-License-Identifier: Apache-2.0
"""A background thread ends by its stop alone, and its heartbeat tells when it does not work."""

from __future__ import annotations

import sqlite3
import threading

import pytest

from lakeward.model import BackgroundThread
from lakeward_testing.waiting import wait_until


@pytest.mark.parametrize("error", [sqlite3.OperationalError("disk I/O error"), SystemExit(3), MemoryError()])
def test_whatever_a_turn_raises_the_next_one_comes(error: BaseException) -> None:
    turns: list[int] = []

    def work() -> float:
        turns.append(len(turns))
        if len(turns) == 1:
            raise error
        return 0.0

    thread = BackgroundThread("t", work, 0.0)
    thread.start()
    wait_until(lambda: len(turns) > 3)
    assert thread.heartbeat().is_well
    thread.stop()
    assert not thread.heartbeat().is_well


def test_a_turn_that_never_ends_shows_and_so_does_what_it_failed_with() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait()
        raise ValueError("no such thing")

    thread = BackgroundThread("t", work, 3600.0, patience_s=0.0)
    thread.start()
    begun.wait()
    wait_until(lambda: not thread.heartbeat().is_well)
    thread.beat()
    go_on.set()
    wait_until(lambda: thread.heartbeat().failure == "no such thing")
    wait_until(lambda: thread.heartbeat().is_well, what="its wait for the next turn")
    assert thread.heartbeat().age_s == 0.0
    thread.stop()
