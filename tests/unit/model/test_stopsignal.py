# SPDX-License-Identifier: Apache-2.0
"""A signal ends the wait of the main thread, whichever thread the kernel gave it to, and whenever it came."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from lakeward.model import StopSignal


@pytest.fixture
def stop() -> Iterator[StopSignal]:
    before = signal.getsignal(signal.SIGUSR1)
    yield StopSignal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def test_it_came_before_the_wait(stop: StopSignal) -> None:
    assert not stop.wait(0)
    signal.raise_signal(signal.SIGUSR1)
    assert stop.wait()


def test_another_thread_got_it(stop: StopSignal) -> None:
    """The main thread's system call goes on: only its next turn sees it."""

    def take() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    taker = threading.Timer(0.05, take)
    taker.start()
    assert stop.wait()
    taker.join()
