# SPDX-License-Identifier: Apache-2.0
"""When a running split stops: its deadline, a flag of the driver, or a lease that is gone. Asked between batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from lakeward.errors import LeaseLost, Unavailable
from lakeward.model import Clock
from lakeward.protocol.heartbeat import LeaseVerdict
from lakeward.tiering.work.order import Order

LEASE_POLL_S = 2.0
"""Executors without the driver's flag file ask the coordinator this often: one short request each."""

FORCE = "force"
ABORT = "abort"


class TaskStop:
    """Stop signal of one order. A stat of the flag file costs microseconds; a lease check a millisecond, every two
    seconds."""

    def __init__(
        self,
        order: Order,
        clock: Clock,
        check_lease: Callable[[], LeaseVerdict],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._order, self._clock, self._check_lease, self._sleep = order, clock, check_lease, sleep
        self._flag = None if order.flag is None else Path(order.flag)
        self._next_poll = clock.monotonic() + LEASE_POLL_S
        self._works_until = clock.monotonic() + (order.min_work_s if order.is_first else 0.0)
        self._forced = False

    def is_due(self) -> bool:
        """True: finish at this batch boundary and hand in what is there."""
        deadline = self._order.deadline_at_ms
        if self._clock.monotonic() < self._works_until:
            return False
        return self._forced or (deadline is not None and self._clock.now_ms() >= deadline)

    def check(self) -> None:
        """Raises `LeaseLost` when the round must not go on."""
        if self._flag is not None:
            self._read_flag(self._flag)
        elif self._clock.monotonic() >= self._next_poll:
            self._poll_lease()

    def wait(self, seconds: float) -> None:
        """Waits, and gives up at once when the round must not go on."""
        until = self._clock.monotonic() + seconds
        while (left := until - self._clock.monotonic()) > 0:
            self._sleep(min(left, 0.2))
            self.check()

    def _read_flag(self, flag: Path) -> None:
        try:
            word, _, reason = flag.read_text().partition(" ")
        except OSError:
            return
        if word == ABORT:
            raise self._lost(reason)
        self._forced = self._forced or word == FORCE

    def _poll_lease(self) -> None:
        self._next_poll = self._clock.monotonic() + LEASE_POLL_S
        try:
            verdict = self._check_lease()
        except Unavailable:
            return  # nobody can say; the driver asks again before it commits
        if not verdict.held:
            raise self._lost(verdict.reason)

    def _lost(self, reason: str) -> LeaseLost:
        order = self._order
        return LeaseLost(
            table=str(order.table.path), round_id=order.round_id, job=order.owner.job, reason=reason or "stopped"
        )
