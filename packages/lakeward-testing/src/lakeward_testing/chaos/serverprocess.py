# SPDX-License-Identifier: Apache-2.0
"""The lab's server: the real one, with switches. `python -m lakeward_testing.chaos.serverprocess SWITCHES READY
key=value ...`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lakeward.config import Config, resolve
from lakeward.hot.embedded.options import StoreOptions
from lakeward.server.process import LakewardServer, exit_now, run_server
from lakeward_testing.chaos.switches import SteppedClock, Switches


def main(arguments: Sequence[str]) -> None:
    switches = Switches(Path(arguments[0]))
    switches.install()

    def make(config: Config) -> LakewardServer:
        options = replace(StoreOptions.of(config), free_bytes=switches.free_bytes)
        return LakewardServer(config, clock=SteppedClock(switches), store_options=options)

    settings = dict(pair.split("=", 1) for pair in arguments[2:])
    exit_now(run_server(resolve(arguments=settings), Path(arguments[1]), make=make))


if __name__ == "__main__":
    main(sys.argv[1:])
