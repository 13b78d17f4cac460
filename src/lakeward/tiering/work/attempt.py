# SPDX-License-Identifier: Apache-2.0
"""One attempt at a piece of work on the driver, of whatever kind: its intent, its lake, and how it ended."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from lakeward.errors import (
    CommitConflict,
    LakewardError,
    LeaseLost,
    SplitFailed,
    Superseded,
    Unavailable,
    to_wire,
)
from lakeward.model import Intent, LakeBase, RoundPhases, RoundResult, TableInfo, of_table
from lakeward.protocol.heartbeat import TableFailed, TableFinished
from lakeward.spi import LakeCommitter, LakeStorage, Plugin, name_lake
from lakeward.tiering.work.backoff import patiently
from lakeward.tiering.work.runner import JobWorld, LeasedWork, RoundEnd

T = TypeVar("T")

NOT_A_FAILURE = (LeaseLost, Superseded)
"""Ends that say nothing about the table: it goes back to the queue without a count."""


@dataclass(kw_only=True)
class Attempt(LeasedWork):
    """`run` never raises: the end goes to the coordinator as a message."""

    world: JobWorld
    started: float = 0.0
    _busy: float = 0.0
    """Processor time of this thread when it began."""

    phases: RoundPhases = field(default_factory=RoundPhases)

    @classmethod
    def at(cls, work: LeasedWork, world: JobWorld) -> Self:
        return cls(
            world=world,
            handed=work.handed,
            owner=work.owner,
            control=work.control,
            round_id=work.round_id,
            meeting=work.meeting,
        )

    def run(self) -> RoundEnd:
        self.started, self._busy = self.world.clock.monotonic(), time.thread_time()
        try:
            with of_table(self.name):
                return self._run()
        except LakewardError as error:
            return self.failed(error)
        except Exception as error:  # noqa: BLE001 - one table's trouble, of whatever kind, fails this work only
            kind, text = type(error).__name__, str(error)[:2000]
            return self.failed(SplitFailed(table=self.name, split="on the driver", kind=kind, text=text))
        finally:
            self.leave()
            self.control.clear()

    @abstractmethod
    def _run(self) -> RoundEnd: ...

    # ---- pieces ----------------------------------------------------------------------------------------------------
    @property
    def name(self) -> str:
        return str(self.handed.path)

    def lake(self, table: TableInfo) -> LakeStorage:
        return self.world.plugins.lake(self.lake_plugin(table))

    def lake_plugin(self, table: TableInfo) -> Plugin:
        name, lake_options = self.world.hot.lake_options(table, self.handed.side)
        return Plugin(name=name, options=dict(lake_options))

    def patiently(self, call: Callable[[], T]) -> T:
        """A server that restarts costs a pause, not the work; calls before the commit are all safe to repeat."""
        return patiently(
            call, clock=self.world.clock, control=self.control, server_wait_s=self.world.options.server_wait_s
        )

    def record_intent(self, table: TableInfo, base: LakeBase, committer: LakeCommitter, at_ms: int) -> None:
        intent = Intent(
            round_id=self.round_id,
            table_id=table.table_id,
            prefix=committer.prefix(self.round_id),
            token=base.token,
            fence=base.fence,
            recorded_at_ms=at_ms,
            kind=self.handed.kind,
            side=self.handed.side,
        )
        self.world.hot.coordinator().record_intent(intent)

    def abandon(self) -> None:
        """Deletes nothing. An intent that stays open is orphan removal's too, only later."""
        try:
            self.world.hot.coordinator().abandon_intent(self.round_id)
        except Unavailable:
            return

    # ---- ends ------------------------------------------------------------------------------------------------------
    def finished(self, result: RoundResult | None, **more: Any) -> TableFinished:
        """`more`: further facts of `TableFinished`."""
        if result is not None:
            cpu_s = result.phases.cpu_s + time.thread_time() - self._busy
            result = replace(result, phases=replace(result.phases, cpu_s=cpu_s))
        return TableFinished(
            table_id=self.handed.table_id,
            epoch=self.handed.epoch,
            round_id=self.round_id,
            result=result,
            side=self.handed.side,
            kind=self.handed.kind,
            **more,
        )

    def failed(self, error: LakewardError) -> TableFailed:
        name_lake(error, self.handed.side.lake)
        stopped = self.control.stopped_by
        lost = isinstance(error, NOT_A_FAILURE) or (isinstance(error, CommitConflict) and error.lost)
        given_back = lost or (stopped is not None and self.control.is_given_back)
        return TableFailed(
            table_id=self.handed.table_id,
            epoch=self.handed.epoch,
            round_id=self.round_id,
            error=to_wire(stopped if stopped is not None and given_back else error),
            given_back=given_back,
            side=self.handed.side,
            kind=self.handed.kind,
        )
