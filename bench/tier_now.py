# SPDX-License-Identifier: Apache-2.0
"""`lakeward tier-now` of a small table, the command's process included, beside the bare start of such a process and the
same call from Python.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.report import Report
from bench.tiering import Bench

CALLS = int(os.environ.get("LAKEWARD_BENCH_CALLS", "40"))


def run(*arguments: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    report = Report("tier_now")
    bare: list[float] = []
    command: list[float] = []
    python: list[float] = []
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as folder:
        bench = Bench(Path(folder))
        try:
            bench.warm_up()
            table = bench.client.create_table("bench.now", "id BIGINT, name STRING", freshness="1 h")
            with report.measure() as cost:
                for n in range(CALLS):
                    bare.append(run("-c", "import typer"))
                    table.append([{"id": n, "name": "x"}])
                    command.append(run("-m", "lakeward.cli", "tier-now", table.path, "--server", bench.server.url))
                    table.append([{"id": n, "name": "y"}])
                    began = time.perf_counter()
                    bench.client.tier_now(table.path)
                    python.append(time.perf_counter() - began)
        finally:
            bench.close()
    start, shell, call = (float(np.median(times)) for times in (bare, command, python))
    report.add(
        "lakeward tier-now of one row, median",
        figure=shell,
        unit="s",
        beside=start,
        beside_what="a process that imports typer",
        target="<= 0.5",
        cost=cost,
    )
    report.add("client.tier_now of one row, median", figure=call, unit="s", target="<= 0.3")
    report.finish()


if __name__ == "__main__":
    main()
