# SPDX-License-Identifier: Apache-2.0
"""One compaction in this process, outside any job: for a manual request where no Lakeward coordinator hands it out.
Only the lake's fence protects it. Two at once, or one beside a job's, cost work but no rows: a commit is made on the
exact head, and a group that lost an input is left out."""

from __future__ import annotations

from lakeward.model import Clock, Epoch, JobName, RoundOwner, SystemClock, TablePath, new_instance_id, new_round_id
from lakeward.model.side import COMPACT
from lakeward.protocol.heartbeat import HandedOut
from lakeward.spi import HotPlugin, PluginCache
from lakeward.tiering.compact.compaction import Compaction
from lakeward.tiering.work.control import RoundControl
from lakeward.tiering.work.dispatch import DirectDispatcher
from lakeward.tiering.work.options import TieringOptions
from lakeward.tiering.work.runner import JobWorld, RoundEnd

_NAME = JobName("maintain")


def compact_once(
    hot: HotPlugin,
    path: TablePath,
    options: TieringOptions,
    clock: Clock | None = None,
    plugins: PluginCache | None = None,
) -> RoundEnd:
    """Blocks until it is over; `force_finished` of its end says that more is left to do. Safe to repeat; a crash leaves
    files that a job removes like those of a failed round. Raises `TableNotFound`; how else it ended is in the answer.
    """
    clock, table = clock or SystemClock(), hot.store().load_table(path)
    plugins = plugins or PluginCache(open_hot=lambda _name, _options: hot)
    dispatcher = DirectDispatcher(plugins, clock)
    world = JobWorld(hot=hot, plugins=plugins, dispatcher=dispatcher, clock=clock, options=options)
    handed = HandedOut(table_id=table.table_id, path=path, epoch=Epoch(0), freshness_ms=0, kind=COMPACT)
    owner = RoundOwner(job=_NAME, instance=new_instance_id(), epoch=handed.epoch)
    try:
        return Compaction(
            world=world,
            handed=handed,
            owner=owner,
            control=RoundControl(),
            round_id=new_round_id(),
            is_leased=False,
        ).run()
    finally:
        dispatcher.close()
