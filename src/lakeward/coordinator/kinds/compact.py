# SPDX-License-Identifier: Apache-2.0
"""Compactions: the kind of work that has no deadline, and takes what slots rounds leave (design.md 13.5).

What is to be done in a lake only the job sees, when it plans. Here a side is due when its lake has got some data files,
or delete files, more since it was last looked at, and when nothing came for an hour (`compaction.quiet-after`), for
what is packed then; a changelog with a retention of its own, every hour or as often as that.
"""

from __future__ import annotations

from collections import deque

from lakeward.coordinator.schedule.kind import Kind
from lakeward.coordinator.schedule.schedule import Schedule
from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.jobs import JobRecord
from lakeward.coordinator.state.record import LakeSide
from lakeward.coordinator.state.work import Lease, Work
from lakeward.model import TIER, JobName
from lakeward.model.side import COMPACT
from lakeward.protocol.heartbeat import TableFinished
from lakeward.spi import SupportsRewrite

LOOK_FILES = 8
"""New files after which a side is looked at: the fan-in, as fewer can not be merged."""

MOST_BUCKETS = 16
"""Where a look found nothing to do, so many times the files are waited for, if there are so many buckets."""

LOOK_S = 5.0
"""How often, at most, all sides are gone through for one that is due."""

DROP_MS = 3_600_000
"""How often, at least, a changelog with a retention is looked at."""

UNKNOWN_MS = 5_000.0
"""Assumed duration of a side's first compaction. It is stopped when a round needs its slot."""

HOUR_S = 3_600.0


class CompactKind(Kind):
    name = COMPACT
    is_upkeep = True
    if_undone = "Each round writes at least a file for each bucket, and no job merges them."

    def __init__(self, board: Board, schedule: Schedule) -> None:
        super().__init__(board, schedule)
        self._looked_at = dict[JobName, float]()
        self._rewritten = deque[tuple[float, int]]()

    # ---- what is due ----
    def is_due(self, side: LakeSide) -> bool:
        if side.token is None or not self._is_on(side):
            return False
        work = side.work(COMPACT)
        return work.asked or self._has_grown(side, work) or self._is_stale(side, work)

    def _has_grown(self, side: LakeSide, work: Work) -> bool:
        """Each by itself: an upsert round brings one of both, and is one more file to merge."""
        data, deletes = side.lake.files or 0, side.lake.delete_files or 0
        return data >= work.due_files or deletes >= work.due_delete_files

    def _is_on(self, side: LakeSide) -> bool:
        return (side.options.compacted or side.work(COMPACT).asked) and self.why_not(side) is None

    def why_not(self, side: LakeSide) -> str | None:
        storage = self._board.lake_of(side)
        return None if isinstance(storage, SupportsRewrite) else "its lake format has no files that Lakeward rewrites"

    def _is_stale(self, side: LakeSide, work: Work) -> bool:
        if work.looked_at_ms is None or side.last_tiered_at_ms is None:
            return False
        looked, keep_ms = work.looked_at_ms, side.options.retention_ms
        if keep_ms is not None and side.lake.rows and self._board.clock.now_ms() > looked + min(DROP_MS, keep_ms):
            return True
        quiet_ms = 1_000 * self._board.options.quiet_after_s
        return side.last_tiered_at_ms > looked - quiet_ms and self._board.clock.now_ms() > looked + quiet_ms

    def choose(self, job: JobRecord, room: int) -> list[LakeSide]:
        """Those with far too many files, and those that somebody asked for, take any free slot."""
        now, pool = self._board.clock.monotonic(), job.pool
        asked = any(s.work(COMPACT).asked for s in self._board.sides() if s.options.pool == pool)
        if not asked and now - self._looked_at.get(job.name, float("-inf")) < LOOK_S:
            return []
        self._looked_at[job.name] = now
        room = min(room, self._room(job))
        if room <= 0:
            return []
        sides = (
            s
            for s in self._board.sides()
            if s.options.pool == pool and job.may_take(s.id, self.name, s.options.format) and self._is_pressing(s)
        )
        free = self._schedule.load(pool).free if job.takes_rounds else room
        pressing = sorted((s for s in sides if self.is_free(s) and self.is_due(s)), key=self.order)[: min(room, free)]
        return pressing or super().choose(job, room)

    def _is_pressing(self, side: LakeSide) -> bool:
        buckets = max(1, len(side.committed))
        return side.work(COMPACT).asked or side.lake.all_files > self._board.options.urgent_files * buckets

    def _room(self, job: JobRecord) -> int:
        """Within the bytes of an hour, and the share of the slots that rounds want as well."""
        options, now = self._board.options, self._board.clock.monotonic()
        while self._rewritten and self._rewritten[0][0] < now - HOUR_S:
            self._rewritten.popleft()
        limit = options.compaction_bytes_per_hour
        if limit is not None and sum(size for _, size in self._rewritten) >= limit:
            return 0
        if not job.takes_rounds:
            return job.slots
        shared = {j.name: j.slots for j in self._schedule.live_jobs(job.pool, COMPACT) if j.takes_rounds}
        running = sum(lease.job in shared for _, work, lease in self._board.leased() if work.kind == COMPACT)
        return max(1, int(sum(shared.values()) * options.compaction_slots)) - running

    def order(self, side: LakeSide) -> float:
        return -side.lake.all_files

    def expected_ms(self, side: LakeSide) -> float:
        return side.work(COMPACT).estimate.typical_ms(UNKNOWN_MS)

    # ---- the lease ----
    def limit_ms(self, side: LakeSide) -> int:
        return int(1_000 * self._board.options.compaction_limit_s)

    def why_enough(self, side: LakeSide, lease: Lease) -> str | None:
        """A round that waits gets the slot: what is rewritten by then is committed. Pressing work rewrites a group
        first: where rounds leave no pause it would be broken off each time, with nothing done."""
        load, takes_rounds = self._schedule.load(side.options.pool), self._schedule.takes_rounds(lease)
        may_stop = takes_rounds and (lease.progress.splits_done > 0 or not self._is_pressing(side))
        if may_stop and load.free == 0 and any(self._schedule.kinds[TIER].is_due(s) for s in self._pool(side)):
            return "a round needs the slot"
        return super().why_enough(side, lease)

    def _pool(self, side: LakeSide) -> list[LakeSide]:
        return [s for s in self._board.sides() if s.options.pool == side.options.pool]

    # ---- the end ----
    def finished(self, side: LakeSide, work: Work, finished: TableFinished) -> None:
        result = finished.result
        moved = result is not None and result.files_replaced > 0
        steps = 1 if moved else min(max(1, len(side.committed)), MOST_BUCKETS)
        work.due_files = (side.lake.files or 0) + LOOK_FILES * steps
        work.due_delete_files = (side.lake.delete_files or 0) + LOOK_FILES * steps
        if finished.force_finished and moved:
            work.due_files = 0  # there is more of it
        work.looked_at_ms, work.asked = self._board.clock.now_ms(), False
        work.debt_files, work.debt_rows = 0, 0
        if result is not None:
            self._rewritten.append((self._board.clock.monotonic(), result.bytes_written))
            work.debt_files = max(0, (result.debt_files or 0) - result.files_replaced + result.files)
            work.debt_rows = result.debt_rows
        super().finished(side, work, finished)
