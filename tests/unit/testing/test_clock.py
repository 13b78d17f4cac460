# SPDX-License-Identifier: Apache-2.0
"""The clock that a test moves, and ports nobody uses."""

from __future__ import annotations

import socket

import pytest

from lakeward.errors import InvalidRequest
from lakeward_testing import ManualClock, free_port


def test_time_stands_until_it_is_moved() -> None:
    clock = ManualClock(1_000, 5.0)
    assert (clock.now_ms(), clock.monotonic()) == (1_000, 5.0)
    clock.advance(1.5)
    assert (clock.now_ms(), clock.monotonic()) == (2_500, 6.5)


def test_the_wall_clock_may_jump_and_monotonic_time_does_not_notice() -> None:
    clock = ManualClock(10_000, 5.0)
    clock.jump(-3)
    assert (clock.now_ms(), clock.monotonic()) == (7_000, 5.0)
    with pytest.raises(InvalidRequest):
        clock.advance(-1)


def test_a_free_port_can_be_bound() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", free_port()))
