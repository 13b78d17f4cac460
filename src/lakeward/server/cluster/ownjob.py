# SPDX-License-Identifier: Apache-2.0
"""The job in whose process a page is served: what it does now, and its rounds with their phases, failed ones too."""

from __future__ import annotations

from collections import deque

from lakeward.model import RoundId, RoundResult, TablePath
from lakeward.protocol.heartbeat import TableFailed
from lakeward.protocol.views import JobStatus, RoundStatus
from lakeward.server.cluster.shown import DONE
from lakeward.tiering.job.job import TieringJob
from lakeward.tiering.work.runner import LeasedWork, RoundEnd

KEPT = 1_000


class OwnJob:
    """Read from any thread."""

    def __init__(self, job: TieringJob) -> None:
        self._job, self._clock = job, job.world.clock
        self._rounds: deque[RoundStatus] = deque(maxlen=KEPT)
        job.on_round = self._note

    def _note(self, work: LeasedWork, end: RoundEnd) -> None:
        failed = end if isinstance(end, TableFailed) and not end.given_back else None
        result = None if isinstance(end, TableFailed) else end.result
        if failed is not None or result is not None:
            self._rounds.appendleft(_show(work, result, failed, self._clock.now_ms()))

    def rounds(self) -> list[RoundStatus]:
        """Newest first."""
        return list(self._rounds)

    def works(self) -> dict[TablePath, LeasedWork]:
        return {w.handed.path: w for w in self._job.enumerator.works()}

    def status(self) -> JobStatus:
        identity, works = self._job.identity, self.works()
        return JobStatus(
            name=identity.name,
            instance=identity.instance,
            pool=identity.pool,
            slots=identity.slots,
            live=self._job.enumerator.is_connected,
            last_beat_at_ms=self._clock.now_ms(),
            host=identity.host,
            version=identity.version,
            working_on=tuple(works),
            progress={str(path): w.control.progress for path, w in works.items()},
            kinds=identity.kinds,
        )


def _show(work: LeasedWork, result: RoundResult | None, failed: TableFailed | None, now_ms: int) -> RoundStatus:
    done = result or RoundResult(round_id=RoundId(work.round_id), snapshot_id=None)
    return RoundStatus(
        round_id=done.round_id,
        path=work.handed.path,
        epoch=work.handed.epoch,
        job=work.owner.job,
        outcome=DONE if failed is None else "failed",
        started_at_ms=now_ms - int(1_000 * done.phases.total_s),
        ended_at_ms=now_ms,
        phases=done.phases,
        snapshot_id=done.snapshot_id,
        rows=done.rows,
        deletes=done.deletes,
        bytes_written=done.bytes_written,
        files=done.files,
        error=None if failed is None else failed.error,
        kind=work.handed.kind,
        bytes_read=done.bytes_read,
        files_replaced=done.files_replaced,
        groups_left_out=done.groups_left_out,
    )
