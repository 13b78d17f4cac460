# SPDX-License-Identifier: Apache-2.0
"""Our compaction (design.md 6.8 and 13) in the model's two steps, by the lake's own rewrite."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lakeward.errors import CommitConflict
from lakeward.lake.iceberg.rewrite import RewrittenGroup
from lakeward.model.bucket import Bucket
from lakeward.model.ids import new_round_id
from lakeward.model.intent import Intent
from lakeward.model.offsetset import OffsetSet
from lakeward.model.round import LakeBase
from lakeward.model.side import COMPACT
from lakeward.spi.lake import Precondition, RewriteGroup, RewriteResult
from lakeward.spi.rewrite import RewriteTask

if TYPE_CHECKING:
    from tests.chaos.stage import Stage

BUCKET = Bucket("", 0)
"""The stage's tables have one."""


class Compaction:
    """Rewrites all files of the head that `write` meets into one. What is off (`Stage.weak`) it does not do."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.round_id = stage, new_round_id()
        self.info = stage.world.store.load_tables()[0]
        self.committer, self.reader = stage.lake.open_committer(self.info), stage.lake.open_reader(self.info)
        self.base = LakeBase()
        self.result: RewriteResult | None = None
        self.landed = False

    def write(self) -> Compaction:
        self.base = self.reader.load_base()
        assert self.base.head is not None
        files, planned = tuple(self.reader.files(self.base.head)), self.reader.load_snapshot(self.base.head)
        assert planned is not None
        self._record_intent()
        task = RewriteTask(
            round_id=self.round_id,
            table=self.info,
            group=RewriteGroup(bucket=BUCKET, files=files, sequence=planned.sequence),
            attempt=0,
            handle=self.committer.begin(self.round_id),
        )
        self.result = self.stage.lake.rewrite(task)
        return self

    def _record_intent(self) -> None:
        self.stage.world.coordinator.record_intent(
            Intent(
                round_id=self.round_id,
                table_id=self.info.table_id,
                prefix=self.committer.prefix(self.round_id),
                token=self.base.token,
                fence=self.base.fence,
                recorded_at_ms=self.stage.clock.now_ms(),
                kind=COMPACT,
            )
        )

    def commit(self) -> None:
        """Gives up when its sources are gone, or when somebody fenced."""
        base, weak = self.reader.load_base(), self.stage.weak
        assert self.result is not None
        result = _forgetting_deletes(self.result) if weak.off("carry_over") else self.result
        fence = base.fence if weak.off("compaction_fenced") else self.base.fence
        committable = self.committer.prepare_rewrite([result], base, self.round_id).committable
        if committable is None:
            return
        try:
            self.committer.commit(committable, Precondition(table_id=self.info.table_id, token=base.token, fence=fence))
        except CommitConflict:
            return
        self.landed = True


def _forgetting_deletes(result: RewriteResult) -> RewriteResult:
    """As if every row that was deleted since had been deleted when it was read: no delete goes along."""
    rewritten = RewrittenGroup.from_bytes(result.payload)
    counts = {file.path: file.record_count for file in result.group.files}
    ranks = tuple(replace(r, gone=OffsetSet(np.arange(counts[r.path]))) for r in rewritten.ranks)
    return replace(result, payload=replace(rewritten, ranks=ranks).to_bytes())
