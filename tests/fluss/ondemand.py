# SPDX-License-Identifier: Apache-2.0
"""Rounds of a Fluss table when a test wants them, without asking Fluss for the table: for tests of what comes after a
crash.
"""

from __future__ import annotations

from lakeward.hot.fluss.coordinatorclient import FlussCoordinatorClient
from lakeward.hot.fluss.plugin import FlussPlugin
from lakeward.model import Epoch, InstanceId, JobName, RoundOwner, SystemClock, new_round_id
from lakeward.protocol.heartbeat import HandedOut, LeaseCheck, LeaseVerdict
from lakeward.spi import Plugin, PluginCache
from lakeward.tiering.round.round import Round
from lakeward.tiering.work.control import RoundControl
from lakeward.tiering.work.dispatch import DirectDispatcher
from lakeward.tiering.work.options import TieringOptions
from lakeward.tiering.work.runner import JobWorld, RoundEnd
from tests.fluss.world import FlussWorld


class _Leased(FlussCoordinatorClient):
    """Fluss's coordinator, but for the lease, which every round has."""

    def check_lease(self, check: LeaseCheck) -> LeaseVerdict:
        return LeaseVerdict(held=True)


class _LeasedPlugin(FlussPlugin):
    def __init__(self, bootstrap: str) -> None:
        super().__init__({"bootstrap": bootstrap})
        self._coordinator = _Leased(self.servers, self._store, self._lake)


class OnDemand:
    """`run` makes one round of a table. Give tables a long freshness, so that no job takes them meanwhile."""

    def __init__(self, world: FlussWorld) -> None:
        self._world = world
        self.plugin = _LeasedPlugin(world.cluster.bootstrap)
        plugins = PluginCache(open_hot=lambda _name, _options: self.plugin)
        plugins.hot(Plugin(name="fluss", options=dict(self.plugin.options)))
        self._dispatcher = DirectDispatcher(plugins)
        self._rounds = JobWorld(
            hot=self.plugin,
            plugins=plugins,
            dispatcher=self._dispatcher,
            clock=SystemClock(),
            options=TieringOptions(target_bytes=20_000),
        )

    def run(self, name: str, epoch: int = 1) -> RoundEnd:
        table = self._world.table(name)
        handed = HandedOut(table_id=table.table_id, path=table.path, epoch=Epoch(epoch), freshness_ms=60_000)
        owner = RoundOwner(job=JobName("on-demand"), instance=InstanceId("one"), epoch=Epoch(epoch))
        return Round(
            world=self._rounds, handed=handed, owner=owner, control=RoundControl(None), round_id=new_round_id()
        ).run()

    def close(self) -> None:
        self._dispatcher.close()
        self.plugin.store().close()
