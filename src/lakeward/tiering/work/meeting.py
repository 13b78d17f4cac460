# SPDX-License-Identifier: Apache-2.0
"""Where rounds of one table's sides meet after planning, so that their tasks read the log once. Each round stays its
own: its lease, its control, its outcomes, its commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from lakeward.errors import LakewardError
from lakeward.model import RoundId
from lakeward.tiering.work.control import RoundControl
from lakeward.tiering.work.dispatch import Dispatcher, Progressed
from lakeward.tiering.work.outcome import WriteOutcome
from lakeward.tiering.work.together import plan_orders
from lakeward.tiering.work.writeorder import WriteOrder

StartThread = Callable[[Callable[[], None], str], None]

POLL_S = 0.05
MOST_WAIT_S, LEAST_WAIT_S = 3.0, 0.5
"""How long a round that has planned waits for the others: planning takes some tenths of a second, longer where a lake
is slow, and then it is not waited for."""


def wait_for_others_s(left_ms: float | None) -> float:
    """A quarter of the time until the deadline, so that waiting never makes a round late by itself."""
    return MOST_WAIT_S if left_ms is None else min(MOST_WAIT_S, max(LEAST_WAIT_S, left_ms / 4_000))


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A round's splits, in the order of their turns, as it would send them alone."""

    order: WriteOrder
    control: RoundControl
    is_small: bool
    progressed: Progressed
    wait_s: float = MOST_WAIT_S

    @property
    def round_id(self) -> RoundId:
        return self.order.round_id


@dataclass(kw_only=True)
class Meeting:
    """Safe to use from several threads. `expected`: rounds that neither came nor left so far."""

    dispatcher: Dispatcher
    start_thread: StartThread
    expected: set[RoundId]
    _offers: list[Offer] = field(default_factory=list)
    _outcomes: list[WriteOutcome] | None = None
    _is_begun: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _done: threading.Event = field(default_factory=threading.Event)

    def run(self, offer: Offer) -> list[WriteOutcome] | None:
        """This round's outcomes, of tasks that it shared with other rounds. None: it continues alone, since no other
        round came in time, or the tasks of all were lost. Raises the reason if the round was stopped; the others
        continue."""
        if not self._come(offer):
            return None
        while not self._done.wait(POLL_S):
            offer.control.check()
        offer.control.check()
        if self._outcomes is None:
            return None
        return [o for o in self._outcomes if o.round_id == offer.round_id]

    def leave(self, round_id: RoundId) -> None:
        """It has nothing to read, or is over. Safe to repeat."""
        with self._changed:
            self.expected.discard(round_id)
            self._changed.notify_all()

    def _come(self, offer: Offer) -> bool:
        """True once tasks of this and other rounds are on their way."""
        with self._changed:
            if self._is_begun:
                return False
            self.expected.discard(offer.round_id)
            self._offers.append(offer)
            self._changed.notify_all()
            waited = 0.0
            while not self._is_begun and self.expected and waited < offer.wait_s:
                self._changed.wait(POLL_S)
                waited += POLL_S
                if offer.control.stopped_by is not None and not self._is_begun:
                    self._offers.remove(offer)
                    offer.control.check()
            if not self._is_begun:
                self._begin()
            return len(self._offers) > 1

    def _begin(self) -> None:
        self._is_begun = True
        self._changed.notify_all()
        if len(self._offers) > 1:
            try:
                self.start_thread(self._dispatch, f"lakeward-together-{self._offers[0].round_id}")
            except RuntimeError:  # no more threads: each goes on in the one it has
                self._done.set()

    def _dispatch(self) -> None:
        """Runs in its own thread, since a round that waits for it may be stopped before the others. Never raises."""
        try:
            is_small = all(offer.is_small for offer in self._offers)
            orders = plan_orders([offer.order for offer in self._offers], is_small=is_small)
            control = _EveryControl(offer.control for offer in self._offers)
            packed = self.dispatcher.run(
                orders, control, is_small=is_small, progressed=lambda done: self._show(done, len(orders))
            )
            self._outcomes = [WriteOutcome.from_bytes(data) for data in packed]
        except Exception:  # noqa: BLE001 - each round finds out alone what it is that fails
            self._outcomes = None
        finally:
            self._done.set()

    def _show(self, done: int, tasks: int) -> None:
        """Which round's splits a task had only its outcomes tell: until then each is as far as all of them."""
        for offer in self._offers:
            splits = len(offer.order.splits)
            offer.progressed(splits * min(done, tasks) // max(1, tasks))


class _EveryControl(RoundControl):
    """Stopped once every round is."""

    def __init__(self, controls: Iterable[RoundControl]) -> None:
        super().__init__()
        self._controls = list(controls)

    @property
    def stopped_by(self) -> LakewardError | None:
        errors = [control.stopped_by for control in self._controls]
        return None if any(error is None for error in errors) else errors[0]

    def check(self) -> None:
        error = self.stopped_by
        if error is not None:
            raise error
