# SPDX-License-Identifier: Apache-2.0
"""The lab's job: the real one with switches, on Spark or, quicker to start, with its rounds' splits on threads.

`python -m lakeward_testing.chaos.jobprocess SWITCHES SERVER NAME SLOTS [MASTER]`."""

from __future__ import annotations

import faulthandler
import logging
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from lakeward.config import resolve
from lakeward.model import JobName
from lakeward.spi import Plugin, PluginCache
from lakeward.tiering.job.arguments import run
from lakeward.tiering.job.job import TieringJob, run_until_signal
from lakeward.tiering.work.dispatch import DirectDispatcher
from lakeward.tiering.work.options import TieringOptions
from lakeward_testing.chaos.switches import Switches


def main(arguments: Sequence[str]) -> None:
    folder, server, name, slots = arguments[:4]
    Switches(Path(folder)).install()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    if len(arguments) > 4:
        run(server=server, name=name, slots=int(slots), master=arguments[4])
    else:
        _run_on_threads(server, name, int(slots))


def _run_on_threads(server: str, name: str, slots: int) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    quick = {"tiering.master": "local[2]", "compaction.fan-in": 2}
    config = resolve(arguments={"client.server": server, "tiering.slots": slots, **quick})
    plugins = PluginCache()
    hot = plugins.hot(Plugin(name="embedded", options={"server": server}))
    job = TieringJob(
        TieringOptions.from_config(config),
        hot,
        plugins,
        DirectDispatcher(plugins, threads=4),
        name=JobName(name),
        start_thread=_start,
    )
    run_until_signal(job)


def _start(target: Callable[[], None], name: str) -> None:
    threading.Thread(target=target, name=name, daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
