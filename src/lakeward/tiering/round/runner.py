# SPDX-License-Identifier: Apache-2.0
"""The kind of work that brings a side up to date: rounds."""

from __future__ import annotations

from lakeward.model import TIER, Clock
from lakeward.spi import PluginCache
from lakeward.tiering.round.round import Round
from lakeward.tiering.work.runner import JobWorld, LeasedWork, RoundEnd, WorkRunner
from lakeward.tiering.work.writeorder import WriteOrder
from lakeward.tiering.write.write import write_splits


class TierRunner(WorkRunner):
    kind = TIER

    def run(self, work: LeasedWork, world: JobWorld) -> RoundEnd:
        return Round.at(work, world).run()

    def run_order(self, data: bytes, plugins: PluginCache, clock: Clock, attempt: int) -> list[bytes]:
        return [o.to_bytes() for o in write_splits(WriteOrder.from_bytes(data), plugins, clock, attempt)]
