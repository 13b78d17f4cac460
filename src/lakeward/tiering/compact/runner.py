# SPDX-License-Identifier: Apache-2.0
"""The kind of work that rewrites data files of a side into fewer ones: compactions."""

from __future__ import annotations

from lakeward.model import Clock
from lakeward.model.side import COMPACT
from lakeward.spi import PluginCache
from lakeward.tiering.compact.compaction import Compaction
from lakeward.tiering.compact.order import RewriteOrder
from lakeward.tiering.compact.task import rewrite_groups
from lakeward.tiering.work.runner import JobWorld, LeasedWork, RoundEnd, WorkRunner


class CompactRunner(WorkRunner):
    kind = COMPACT

    def run(self, work: LeasedWork, world: JobWorld) -> RoundEnd:
        return Compaction.at(work, world).run()

    def run_order(self, data: bytes, plugins: PluginCache, clock: Clock, attempt: int) -> list[bytes]:
        return [o.to_bytes() for o in rewrite_groups(RewriteOrder.from_bytes(data), plugins, clock, attempt)]
