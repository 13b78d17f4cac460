# SPDX-License-Identifier: Apache-2.0
"""A tiering job without Spark: rounds run on threads of its own process. For tests that kill and start many jobs."""

from __future__ import annotations

import argparse
import faulthandler
import logging
import signal
import sys
import threading
from collections.abc import Callable

from lakeward.config import resolve
from lakeward.model import JobName
from lakeward.spi import Plugin, PluginCache
from lakeward.tiering.job.job import TieringJob, run_until_signal
from lakeward.tiering.work.dispatch import DirectDispatcher
from lakeward.tiering.work.options import TieringOptions


def start(target: Callable[[], None], name: str) -> None:
    threading.Thread(target=target, name=name, daemon=True).start()


def main() -> int:
    parser = argparse.ArgumentParser()
    for flag in ("--server", "--name", "--slots", "--master"):
        parser.add_argument(flag)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    config = resolve(
        arguments={"client.server": given.server, "tiering.slots": int(given.slots), "tiering.master": given.master}
    )
    options = TieringOptions.from_config(config)
    plugins = PluginCache()
    hot = plugins.hot(Plugin(name="embedded", options={"server": given.server}))
    dispatcher = DirectDispatcher(plugins, threads=4)
    run_until_signal(TieringJob(options, hot, plugins, dispatcher, name=JobName(given.name), start_thread=start))
    return 0


if __name__ == "__main__":
    sys.exit(main())
