# SPDX-License-Identifier: Apache-2.0
"""The plug point for kinds of work: what a job hands to one, what all work of a job shares, how work ends."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakeward.model import Clock, RoundId, RoundOwner, TableId, WorkKind
from lakeward.protocol.heartbeat import HandedOut, TableFailed, TableFinished
from lakeward.spi import HotPlugin, PluginCache
from lakeward.tiering.work.control import RoundControl
from lakeward.tiering.work.dispatch import Dispatcher
from lakeward.tiering.work.meeting import Meeting
from lakeward.tiering.work.options import TieringOptions

RoundEnd = TableFinished | TableFailed


def start_daemon(target: Callable[[], None], name: str) -> None:
    threading.Thread(target=target, name=name, daemon=True).start()


@dataclass(frozen=True, kw_only=True)
class JobWorld:
    """Objects that all work of a job shares."""

    hot: HotPlugin
    plugins: PluginCache
    dispatcher: Dispatcher
    clock: Clock
    options: TieringOptions
    check_location: Callable[[str, str], None] = lambda _lake, _location: None
    """Refuses a lake that this job's executors cannot reach."""

    start_thread: Callable[[Callable[[], None], str], None] = start_daemon


@dataclass(kw_only=True)
class LeasedWork:
    """One piece of work: a kind of it, on one side of a table, under one lease."""

    handed: HandedOut
    owner: RoundOwner
    round_id: RoundId
    control: RoundControl
    meeting: Meeting | None = None
    """Where rounds of other sides come to read the log with this one."""

    def leave(self) -> None:
        """The others need not wait for it. Safe to repeat."""
        if self.meeting is not None:
            self.meeting.leave(self.round_id)

    def __str__(self) -> str:
        return f"{self.handed.kind} of {self.handed.path} ({self.handed.side})"


class WorkRunner(ABC):
    """Runs one kind of work. Has no state of its own: created in each process, driver or executor."""

    kind: WorkKind

    @abstractmethod
    def run(self, work: LeasedWork, world: JobWorld) -> RoundEnd:
        """Called on the driver, in a thread of its own; blocks until the work is over. Never raises: how it ended goes
        to the coordinator. A crash leaves the lease, which ends by itself, and files, which are orphan removal's."""

    @abstractmethod
    def run_order(self, data: bytes, plugins: PluginCache, clock: Clock, attempt: int) -> list[bytes]:
        """Called in an executor with one of the orders that `run` gave to the dispatcher; returns outcomes as bytes
        that `run` reads. Never raises: an exception would reach the driver as text only. May be called twice for one
        order, at the same time too; `attempt` is never the same."""


def meet(works: Sequence[LeasedWork], world: JobWorld) -> None:
    """Introduces works of one answer to each other: those of one table that may read the log together, before any of
    them begins."""
    together = defaultdict[TableId, list[LeasedWork]](list)
    for work in works:
        if work.handed.reads_with:
            together[work.handed.table_id].append(work)
    for group in together.values():
        if len(group) > 1:
            meeting = Meeting(
                dispatcher=world.dispatcher,
                start_thread=world.start_thread,
                expected={work.round_id for work in group},
            )
            for work in group:
                work.meeting = meeting
