# SPDX-License-Identifier: Apache-2.0
"""A Spark job killed in the middle of a round and started again under its name: time until the table is tiered."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from bench.lineitem import COLUMNS, lineitem
from bench.report import Report
from bench.tiering import phases_s
from lakeward_testing.faults import Fault, FaultAction
from tests.spark.processes import Job, Server, check_exactly_once, rounds, tier_now, wait_tiered

ROWS = int(os.environ.get("LAKEWARD_BENCH_ROWS", "500000"))


def main() -> None:
    report = Report("recovery")
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as temporary:
        folder = Path(temporary)
        server = Server(folder / "server")
        pause = Fault(point="round.written", action=FaultAction.PAUSE, hit=2, file=str(folder / "pause"))
        job = Job(server, "bench", faults=pause.to_text())
        successor = None
        try:
            with server.connect() as client:
                table = client.create_table(
                    "bench.recovery", COLUMNS, freshness="2 s", properties={"table.datalake.max-round-duration": "1 h"}
                )
                table.append(lineitem(0, 10))
                tier_now(client, table)
                for at in range(0, ROWS, 100_000):
                    table.append(lineitem(at, min(100_000, ROWS)))
                pause.wait_reached(120)
                with report.measure() as cost:
                    job.kill()
                    began = time.perf_counter()
                    successor = Job(server, "bench")
                    wait_tiered(client, table, limit_s=300)
                    seconds = time.perf_counter() - began
                one = phases_s([r for r in rounds(client, table) if r["outcome"] in ("done", "force-finished")][-1])
                check_exactly_once(client, table) if ROWS <= 20_000 else None
        finally:
            for process in (job, successor):
                if process is not None:
                    process.kill()
            server.stop()
    case = f"job killed after writing {ROWS:,} rows, started again under its name"
    report.add(
        f"{case}: until tiered",
        figure=seconds,
        unit="s",
        beside=227.0,
        beside_what="Fluss with Flink, measured apart",
        cost=cost,
    )
    report.add(f"{case}: less its own round", figure=seconds - one, unit="s", target="<= 10", cost=cost)
    report.finish()


if __name__ == "__main__":
    main()
