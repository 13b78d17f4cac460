# SPDX-License-Identifier: Apache-2.0
"""The product's own compaction (design.md 13) in the model's steps: it runs on a thread and stands still at fault
points."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lakeward.errors import CommitConflict
from lakeward.model import Epoch, JobName, RoundId, RoundOwner, TablePath, new_instance_id, new_round_id
from lakeward.model.side import COMPACT
from lakeward.protocol.heartbeat import HandedOut, HeartbeatRequest, TableFailed, TableFinished
from lakeward.spi import LakeCommitter, PluginCache, RewriteResult
from lakeward.tiering.compact import compaction as product
from lakeward.tiering.compact.commit import LandedRewrite
from lakeward.tiering.compact.ground import CompactionGround
from lakeward.tiering.work.control import RoundControl
from lakeward.tiering.work.dispatch import DirectDispatcher
from lakeward.tiering.work.options import CompactionPolicy
from lakeward.tiering.work.runner import JobWorld, LeasedWork, RoundEnd
from lakeward_testing.faults import Fault, FaultAction
from lakeward_testing.waiting import wait_until
from tests.chaos.weak import WeakPlugin

if TYPE_CHECKING:
    from tests.chaos.stage import Stage

EVERYTHING = CompactionPolicy(fan_in=2, max_deleted=-1.0)
"""Two neighbours are merged, and a file alone counts as worn."""


@dataclass(kw_only=True)
class UnfencedCompaction(product.Compaction):
    """Commits under whatever fence it finds."""

    def _commit(
        self, ground: CompactionGround, committer: LakeCommitter, lease: Any, results: Sequence[RewriteResult]
    ) -> LandedRewrite:
        while True:
            found = self.lake(ground.table).open_reader(ground.table).load_base()
            try:
                return super()._commit(replace(ground, base=found), committer, lease, results)
            except CommitConflict as conflict:
                if not conflict.lost:
                    raise


class CompactionActor:
    """What is off (`Stage.weak`) it does not do."""

    def __init__(self, stage: Stage, path: str) -> None:
        self.stage, self.round_id = stage, new_round_id()
        self.job, self.instance = JobName(f"compactor-{self.round_id}"), new_instance_id()
        self.handed = self._take(TablePath.parse(path))
        self.end: RoundEnd | None = None
        self._at: Fault | None = None
        self._thread = threading.Thread(target=self._run, name="compactor", daemon=True)

    @property
    def landed(self) -> bool:
        return isinstance(self.end, TableFinished) and self.end.result is not None and self.end.result.files > 0

    def write(self) -> CompactionActor:
        """Up to the moment at which its files are there."""
        return self._go("compact.written")

    def check_lease(self) -> CompactionActor:
        """Up to the moment at which the request would go out."""
        return self._go("compact.before-lake-commit")

    def commit(self) -> None:
        self._move()
        self._thread.join(120)
        assert not self._thread.is_alive(), "the compaction hangs"

    def _take(self, path: TablePath) -> HandedOut:
        """Under a lease of its own; where the coordinator knows of no round yet, as one that had it before it lost its
        memory."""
        coordinator = self.stage.world.coordinator
        side = coordinator.board.find(path)
        if side.token is None:
            return HandedOut(table_id=side.info.table_id, path=path, epoch=Epoch(1), freshness_ms=60_000, kind=COMPACT)
        coordinator.operations.maintain_now(path)
        request = HeartbeatRequest(job=self.job, instance=self.instance, slots=1, room=1, kinds=(COMPACT,))
        (handed,) = coordinator.heartbeat(request).tables
        return handed

    def _run(self) -> None:
        stage, weak = self.stage, self.stage.weak
        hot, lake = WeakPlugin(stage.world, weak), stage.weakened(weak)
        plugins = PluginCache(open_hot=lambda _n, _o: hot, open_lake=lambda _n, _o: lake)
        world = JobWorld(
            hot=hot,
            plugins=plugins,
            dispatcher=DirectDispatcher(plugins, stage.clock, threads=1),
            clock=stage.clock,
            options=replace(stage.world.world.options, compaction=EVERYTHING),
        )
        owner = RoundOwner(job=self.job, instance=self.instance, epoch=self.handed.epoch)
        work = LeasedWork(handed=self.handed, owner=owner, round_id=self.round_id, control=RoundControl())
        kind = UnfencedCompaction if weak.off("compaction_fenced") else product.Compaction
        self.end = kind.at(work, world).run()
        finished = (self.end,) if isinstance(self.end, TableFinished) else ()
        failed = (self.end,) if isinstance(self.end, TableFailed) else ()
        stage.world.coordinator.heartbeat(
            HeartbeatRequest(job=self.job, instance=self.instance, slots=1, finished=finished, failed=failed)
        )

    def _go(self, point: str) -> CompactionActor:
        fault = self.stage.faults.arm(point, FaultAction.PAUSE, when=self._is_mine)
        self._move()
        wait_until(lambda: fault.is_reached() or not self._thread.is_alive(), what=f"compaction at {point}")
        assert fault.is_reached(), self.end
        self._at = fault
        return self

    def _is_mine(self, facts: dict[str, Any]) -> bool:
        return RoundId(facts.get("round_id", "")) == self.round_id

    def _move(self) -> None:
        if not self._thread.ident:
            self._thread.start()
        elif self._at is not None:
            self._at.release()
