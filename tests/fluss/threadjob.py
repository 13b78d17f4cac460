# SPDX-License-Identifier: Apache-2.0
"""A tiering job on a Fluss cluster without Spark: rounds run on threads of its own process. For tests that kill and
start jobs.
"""

from __future__ import annotations

import argparse
import logging
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
    for flag in ("--fluss", "--user", "--name", "--slots"):
        parser.add_argument(flag)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    config = resolve(arguments={"tiering.slots": int(given.slots)})
    options = TieringOptions.from_config(config).with_fluss(given.fluss, given.user)
    plugins = PluginCache()
    hot = plugins.hot(Plugin(name=options.hot, options=dict(options.hot_options)))
    dispatcher = DirectDispatcher(plugins, threads=4)
    run_until_signal(TieringJob(options, hot, plugins, dispatcher, name=JobName(given.name), start_thread=start))
    return 0


if __name__ == "__main__":
    sys.exit(main())
