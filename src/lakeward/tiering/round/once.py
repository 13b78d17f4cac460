# SPDX-License-Identifier: Apache-2.0
"""One round in this process, outside any job, under a lease that was taken before: where a person asks for it and no
job does.
"""

from __future__ import annotations

from dataclasses import replace

from lakeward.errors import LakewardError, from_wire
from lakeward.model import BackgroundThread, Clock, JobName, RoundOwner, SystemClock, new_instance_id, new_round_id
from lakeward.protocol.heartbeat import HandedOut, HeartbeatRequest, TableFinished, TableInWork
from lakeward.spi import HotPlugin, PluginCache
from lakeward.tiering.round.round import Round
from lakeward.tiering.work.control import RoundControl
from lakeward.tiering.work.dispatch import DirectDispatcher
from lakeward.tiering.work.options import TieringOptions
from lakeward.tiering.work.runner import JobWorld

_NAME = JobName("tier-now")
BEAT_S = 5.0


def tier_once(hot: HotPlugin, handed: HandedOut, options: TieringOptions, clock: Clock | None = None) -> TableFinished:
    """Blocks until the round is over and the coordinator has been told; the lease is renewed meanwhile. A crash leaves
    the lease, which ends by itself, and files, which are orphan removal's. Raises what made the round fail."""
    clock, coordinator = clock or SystemClock(), hot.coordinator()
    plugins = PluginCache(open_hot=lambda _name, _options: hot)
    dispatcher = DirectDispatcher(plugins, clock)
    owner = RoundOwner(job=_NAME, instance=new_instance_id(), epoch=handed.epoch)
    round_id, request = new_round_id(), HeartbeatRequest(job=owner.job, instance=owner.instance)
    in_work = TableInWork(table_id=handed.table_id, epoch=handed.epoch, round_id=round_id)

    def renew() -> None:
        coordinator.heartbeat(replace(request, tiering=(in_work,)))

    renewal = BackgroundThread("tier-now", renew, BEAT_S)
    renewal.start()
    try:
        world = JobWorld(hot=hot, plugins=plugins, dispatcher=dispatcher, clock=clock, options=options)
        end = Round(world=world, handed=handed, owner=owner, control=RoundControl(), round_id=round_id).run()
    finally:
        renewal.stop(BEAT_S)
        dispatcher.close()
    if isinstance(end, TableFinished):
        coordinator.heartbeat(replace(request, finished=(end,)))
        return end
    # Told now: nobody is here to tell it later.
    coordinator.heartbeat(replace(request, failed=(replace(end, given_back=True),)))
    error: LakewardError = from_wire(end.error)
    raise error
