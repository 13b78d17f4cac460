# SPDX-License-Identifier: Apache-2.0
"""One PK table over 2,000 rounds with expiry on: commit and plan times and metadata bytes, the last hundreds against
the first.

Rounds run in one process without Spark, so that what grows with the table is seen and not what Spark costs."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import cast

import numpy as np

from bench.report import Report
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import SystemClock, TablePath
from lakeward.protocol.heartbeat import TableFinished
from lakeward.spi import load_lake
from tests.kit.inprocess import InProcessLakeward

ROUNDS = int(os.environ.get("LAKEWARD_BENCH_ROUNDS", "2000"))
STEP = max(10, ROUNDS // 20)
TABLE = "bench.growth"


def metadata_bytes(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("metadata/*") if p.is_file())


def main() -> None:
    report = Report("growth")
    marks: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as temporary:
        folder = Path(temporary)
        options = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        lake = cast(IcebergLakeStorage, load_lake("iceberg", options))
        world = InProcessLakeward(folder / "server", lake, SystemClock())
        expiry = {
            "iceberg.history.expire.max-snapshot-age-ms": "1000",
            "iceberg.history.expire.min-snapshots-to-keep": "20",
        }
        world.create(TABLE, "id bigint not null, v string", primary_key="id", buckets=1, **expiry)
        record = world.coordinator.board.find(TablePath.parse(TABLE))
        with report.measure() as cost:
            for first in range(0, ROUNDS, STEP):
                marks.append(run(world, first))
                world.coordinator.upkeep.expire(record)
                world.coordinator.upkeep.remove_orphans_of(record)
                marks[-1]["metadata kB"] = metadata_bytes(folder / "warehouse") / 1e3
                print({k: round(v, 2) for k, v in marks[-1].items()}, flush=True)
        world.close()
        lake.connection.close()
    quarter = max(1, len(marks) // 4)
    for name, unit in (("plan ms", "ms"), ("commit ms", "ms"), ("metadata kB", "kB")):
        early = float(
            np.median([m[name] for m in marks[1 : quarter + 1]])
        )  # the first has the start of everything in it
        last = float(np.median([m[name] for m in marks[-quarter:]]))
        case = f"{name.rpartition(' ')[0]}, rounds {ROUNDS - quarter * STEP} to {ROUNDS}"
        report.add(
            case,
            figure=last,
            unit=unit,
            beside=early,
            beside_what="the first quarter",
            target="<= 1.3",
            of="ratio",
            cost=cost,
        )
    report.finish()


def run(world: InProcessLakeward, first: int) -> dict[str, float]:
    """Medians over one step's rounds; a thousand keys, a few of them changed in each round."""
    plans, commits = [], []
    for n in range(first, first + STEP):
        world.upsert(TABLE, [{"id": (37 * n + i) % 1_000, "v": f"{n}-{i}"} for i in range(20)])
        time.sleep(0)
        for end in world.tier(TABLE):
            assert isinstance(end, TableFinished), end
            assert end.result is not None
            plans.append(1_000 * end.result.phases.plan_s)
            commits.append(1_000 * (end.result.phases.resolve_s + end.result.phases.commit_s))
    return {"rounds": first + STEP, "plan ms": float(np.median(plans)), "commit ms": float(np.median(commits))}


if __name__ == "__main__":
    main()
