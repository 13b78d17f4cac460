# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.kit.fluss up|down`: what `make fluss-up` and `make fluss-down` call; and `build TREE`, which
makes the jars from a source tree where no repository has them.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from lakeward.errors import InvalidConfig, LakewardError
from tests.kit.fluss.build import CLUSTER, JOB, PAIMON, build_jars
from tests.kit.fluss.cluster import TEST_SETTINGS, FlussCluster
from tests.kit.fluss.jars import cache_folder, find_server, fluss_version


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kit.fluss", description="A local Apache Fluss cluster with an Iceberg lake."
    )
    parser.add_argument("action", choices=["up", "down", "build"])
    parser.add_argument("tree", type=Path, nargs="?", help="a source tree of Apache Fluss, for build")
    parser.add_argument("--home", type=Path, help="the cluster's folder")
    parser.add_argument("--tablets", type=int, default=1)
    parser.add_argument("--with-job", action="store_true", help="build: the jars of Fluss's own Flink job as well")
    parser.add_argument("--with-paimon", action="store_true", help="build: the plugin for a Paimon lake as well")
    given = parser.parse_args()
    try:
        given.home = given.home or cache_folder().parent / f"cluster-{fluss_version()}"
        if given.action == "build":
            extra = (*(PAIMON if given.with_paimon else ()), *(JOB if given.with_job else ()))
            return _build(given.tree, (*CLUSTER, *extra))
        if given.action == "down":
            FlussCluster.load(given.home).stop()
            return 0
        running = FlussCluster.find_running(given.home)  # a second one in the same folder would share its data
        cluster = running or FlussCluster(home=given.home, tablets=given.tablets, settings=TEST_SETTINGS).start()
    except LakewardError as error:
        print(f"lakeward: {error.message}", file=sys.stderr)
        return 1
    server = find_server()
    print(
        f"Fluss listens at {cluster.bootstrap} ({'' if server is None else server.stem}); its folder is "
        f"{cluster.home}\ntier it:  lakeward tier --fluss {cluster.bootstrap}"
    )
    return 0


def _build(tree: Path | None, modules: tuple[str, ...]) -> int:
    if tree is None:
        raise InvalidConfig(where="build", reason="name the source tree: python -m tests.kit.fluss build TREE")
    print("\n".join(map(str, build_jars(tree, cache_folder(), modules, partial(print, flush=True)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
