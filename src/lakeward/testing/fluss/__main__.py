# SPDX-License-Identifier: Apache-2.0
"""`python -m lakeward.testing.fluss up|down`: what `make fluss-up` and `make fluss-down` call."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lakeward.errors import LakewardError
from lakeward.testing.fluss.cluster import TEST_SETTINGS, FlussCluster
from lakeward.testing.fluss.jars import cache_folder


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lakeward.testing.fluss", description="A local Apache Fluss cluster with an Iceberg lake."
    )
    parser.add_argument("action", choices=["up", "down"])
    parser.add_argument("--home", type=Path, default=cache_folder().parent / "cluster", help="the cluster's folder")
    parser.add_argument("--tablets", type=int, default=1)
    given = parser.parse_args()
    try:
        if given.action == "down":
            FlussCluster.load(given.home).stop()
            return 0
        running = FlussCluster.find_running(given.home)  # a second one in the same folder would share its data
        cluster = running or FlussCluster(home=given.home, tablets=given.tablets, settings=TEST_SETTINGS).start()
    except LakewardError as error:
        print(f"lakeward: {error.message}", file=sys.stderr)
        return 1
    print(
        f"Fluss listens at {cluster.bootstrap}; its folder is {cluster.home}\ntier it:  lakeward tier --fluss "
        f"{cluster.bootstrap}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
