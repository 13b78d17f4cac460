# SPDX-License-Identifier: Apache-2.0
"""The heartbeat: tells the coordinator what is in work and what ended, takes tables while there is room, acts on
verdicts.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from lakeward.errors import (
    LakewardError,
    LeaseLost,
    Superseded,
    TableNotFound,
    Unavailable,
    UnknownWork,
    to_wire,
)
from lakeward.model import InstanceId, JobName, RoundId, SideName, TableId, WorkKind, resident_bytes
from lakeward.protocol.heartbeat import (
    HandedOut,
    HeartbeatAnswer,
    HeartbeatRequest,
    TableFailed,
    TableFinished,
    TableInWork,
    TableVerdict,
    Verdict,
    busy_slots,
)
from lakeward.spi import CoordinatorClient
from lakeward.tiering.work.backoff import delays
from lakeward.tiering.work.kinds import KINDS
from lakeward.tiering.work.runner import LeasedWork, RoundEnd

log = logging.getLogger("lakeward.tiering")

_MISSED = 5
"""A server that has never answered is probably starting, as the job is: it is reported once after a second or two. One
that went away is reported at once."""


@dataclass(frozen=True, kw_only=True)
class JobIdentity:
    name: JobName
    instance: InstanceId
    pool: str = "default"
    slots: int = 1
    host: str = ""
    version: str = ""
    metrics_url: str | None = None
    kinds: tuple[WorkKind, ...] = tuple(KINDS)
    formats: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Enumerator:
    """One thread runs `run`; the threads of works call `end`. `start` begins what was handed out.

    Ends stay in the outbox until a beat has told them: a lost answer tells them twice, which the coordinator takes."""

    coordinator: CoordinatorClient
    identity: JobIdentity
    start: Callable[[LeasedWork], None]
    new_work: Callable[[HandedOut], LeasedWork]
    gather: Callable[[Sequence[LeasedWork]], None] = lambda _works: None
    """Sees all that came in one answer before any of it is started."""

    interval_s: float = 1.0
    on_end: Callable[[RoundEnd], None] = lambda _end: None
    is_draining: bool = False
    is_connected: bool = False
    superseded: Superseded | None = None
    _works: dict[RoundId, LeasedWork] = field(default_factory=dict)
    _finished: list[TableFinished] = field(default_factory=list)
    _failed: list[TableFailed] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _is_dirty: bool = False
    _is_over: bool = False
    _coordinator_epoch: int | None = None

    # ---- what others call ----------------------------------------------------------------------------------------
    def end(self, work: LeasedWork, end: RoundEnd) -> None:
        """Reports a finished round at once, not on the next tick. A round that was reported with its commit waits for
        the tick, unless other work can be had sooner."""
        next_ms = work.control.told_next_ms
        with self._changed:
            self._works.pop(work.round_id, None)
            if next_ms is None:
                (self._finished if isinstance(end, TableFinished) else self._failed).append(end)  # type: ignore[arg-type]
            self._is_dirty = self._is_dirty or next_ms is None or next_ms < 1000 * self.interval_s
            self._changed.notify_all()
        self.on_end(end)

    def works(self) -> list[LeasedWork]:
        with self._changed:
            return list(self._works.values())

    def drain(self) -> None:
        """No new rounds from here on."""
        with self._changed:
            self.is_draining = self._is_dirty = True
            self._changed.notify_all()

    def wait_idle(self, seconds: float) -> bool:
        """True once no round runs."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._works, seconds)

    def stop(self) -> None:
        """Ends `run`."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def leave(self) -> None:
        """The last beat: gives every lease back. Best effort, as the coordinator notices anyway, only later."""
        try:
            self.coordinator.heartbeat(self._request(leaving=True))
        except LakewardError as error:
            log.warning("leaving without an answer: %s", error)

    # ---- the loop ------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Beats until `stop`. A server that is away is waited for; `Superseded` ends the loop and every round."""
        waits, missed = delays(0.1, 3.0), 0
        pause = 0.0
        while self._wait(pause):
            try:
                answer = self.beat()
            except Superseded as error:
                self._supersede(error)
                return
            except LakewardError as error:
                missed = _MISSED if self.is_connected else missed + 1
                if missed == _MISSED or not isinstance(error, Unavailable):
                    log.warning("heartbeat: %s", error)
                self.is_connected = False
                pause = next(waits)
                self._is_dirty = False
                continue
            waits, missed, self.is_connected = delays(0.1, 3.0), 0, True
            pause = min(answer.next_beat_ms / 1000, self.interval_s)

    def _wait(self, pause: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._is_dirty, pause)
            self._is_dirty = False
            return not self._is_over

    def beat(self) -> HeartbeatAnswer:
        """One exchange. What it told leaves the outbox only when the answer is there."""
        request = self._request()
        answer = self.coordinator.heartbeat(request)
        with self._changed:
            self._finished = [f for f in self._finished if f not in request.finished]
            self._failed = [f for f in self._failed if f not in request.failed]
            self._coordinator_epoch = answer.coordinator_epoch
        self._obey(answer.verdicts)
        self._take(answer.tables)
        return answer

    def _request(self, *, leaving: bool = False) -> HeartbeatRequest:
        me = self.identity
        with self._changed:
            works = list(self._works.values())
            room = (
                0
                if self.is_draining or leaving
                else max(0, me.slots - busy_slots([w.control.progress for w in works], me.slots))
            )
            return HeartbeatRequest(
                job=me.name,
                instance=me.instance,
                pool=me.pool,
                slots=me.slots,
                room=room,
                host=me.host,
                version=me.version,
                now_ms=round(time.time() * 1000),
                memory_bytes=resident_bytes(),
                coordinator_epoch=self._coordinator_epoch,
                tiering=tuple(
                    TableInWork(
                        table_id=w.handed.table_id,
                        epoch=w.handed.epoch,
                        round_id=w.round_id,
                        progress=w.control.progress,
                        side=w.handed.side,
                        kind=w.handed.kind,
                    )
                    for w in works
                ),
                finished=tuple(self._finished),
                failed=tuple(self._failed),
                leaving=leaving,
                metrics_url=me.metrics_url,
                kinds=me.kinds,
                formats=me.formats,
                reads_together=True,
                wait_ms=0 if works or self._finished or self._failed or not room else int(1000 * self.interval_s),
            )

    def _take(self, tables: Iterable[HandedOut]) -> None:
        works = list[LeasedWork]()
        for handed in tables:
            if handed.kind in self.identity.kinds:
                works.append(self.new_work(handed))
            else:
                self._refuse(handed)
        self.gather(works)
        with self._changed:
            self._works |= {work.round_id: work for work in works}
        for work in works:
            self.start(work)

    def _refuse(self, handed: HandedOut) -> None:
        """Gives work back with the next heartbeat, not at once: the coordinator may hand it out again."""
        known_kinds = ", ".join(self.identity.kinds)
        error = UnknownWork(job=self.identity.name, kind=handed.kind, table=str(handed.path), known=known_kinds)
        log.warning("%s", error)
        with self._changed:
            self._failed.append(
                TableFailed(
                    table_id=handed.table_id,
                    epoch=handed.epoch,
                    error=to_wire(error),
                    given_back=True,
                    side=handed.side,
                    kind=handed.kind,
                )
            )

    # ---- verdicts ------------------------------------------------------------------------------------------------
    def _obey(self, verdicts: Iterable[TableVerdict]) -> None:
        """A verdict is for a round, not for a table: it is matched on the round id where it names one."""
        for verdict in verdicts:
            for work in self.works():
                if _key(work.handed) == _key(verdict) and verdict.round_id in (None, work.round_id):
                    self._act(work, verdict)

    def _act(self, work: LeasedWork, verdict: TableVerdict) -> None:
        if verdict.verdict is Verdict.OK or work.control.stopped_by is not None:
            return
        if verdict.verdict is Verdict.FORCE_FINISH and work.control.forced:
            return
        match verdict.verdict:
            case Verdict.FORCE_FINISH:
                work.control.force()
            case Verdict.DROPPED:
                work.control.stop(TableNotFound(table=str(work.handed.path)))
            case Verdict.FENCED | Verdict.PAUSED:
                work.control.stop(self._lost(work, verdict.reason or str(verdict.verdict)))
        log.info("%s: %s: %s", work, verdict.verdict, verdict.reason)

    def _supersede(self, error: Superseded) -> None:
        log.error("%s", error)
        self.superseded = error
        for work in self.works():
            work.control.leave(error)
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _lost(self, work: LeasedWork, reason: str) -> LeaseLost:
        return LeaseLost(table=str(work.handed.path), round_id=work.round_id, job=self.identity.name, reason=reason)


def _key(about: HandedOut | TableVerdict) -> tuple[TableId, SideName, WorkKind]:
    return about.table_id, about.side, about.kind
