# SPDX-License-Identifier: Apache-2.0
"""How long `import lakeward` and the command line take to start, beside a Python that does nothing."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from bench.report import Report

RUNS = 15


def start_ms(*arguments: str) -> float:
    """The median wall time of a fresh process, in milliseconds, after one run to warm the file cache."""
    times = []
    for _ in range(RUNS + 1):
        begin = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        times.append((time.perf_counter() - begin) * 1_000)
    return statistics.median(times[1:])


def main() -> None:
    report = Report("startup")
    empty = start_ms("-c", "pass")
    for case, arguments, target in (
        ("import lakeward", ("-c", "import lakeward"), "<= 150"),
        ("lakeward version", ("-m", "lakeward.cli", "version"), None),
        ("import lakeward.config", ("-c", "import lakeward.config"), None),
    ):
        with report.measure() as cost:
            figure = start_ms(*arguments)
        report.add(
            case,
            figure=figure,
            unit="ms",
            beside=empty,
            beside_what="an empty Python process",
            target=target,
            cost=cost,
        )
    report.finish()


if __name__ == "__main__":
    main()
