# SPDX-License-Identifier: Apache-2.0
"""Files that readers open, over 25 minutes of rounds at a freshness of 5 s: 45 buckets, 7 changes a second, a third of
them deletes, with compaction as it is by default and without. Rounds, compactions and the schedule are the real ones;
only time is turned by hand.

`LAKEWARD_BENCH_ROUNDS=40 python -m bench.live_files` runs a small version.
"""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path
from typing import Any

from bench.report import Report
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import TablePath
from lakeward.model.side import COMPACT
from tests.kit.iceberg.folder import folder_lake
from tests.kit.inprocess import InProcessLakeward

ROUNDS = int(os.environ.get("LAKEWARD_BENCH_ROUNDS", "300"))
BUCKETS, RATE, FRESHNESS_S, KEYS = 45, 7, 5, 2_000
PATH = "bench.t"


def change(world: InProcessLakeward, chance: random.Random) -> None:
    """What comes in the time of a round."""
    changes = [(chance.randrange(KEYS), chance.random() < 1 / 3) for _ in range(RATE * FRESHNESS_S)]
    upserts = [{"id": key, "name": f"n{key}"} for key, is_delete in changes if not is_delete]
    deletes = [{"id": key} for key, is_delete in changes if is_delete]
    if upserts:
        world.upsert(PATH, upserts)
    if deletes:
        world.delete(PATH, deletes)


def run(folder: Path, lake: IcebergLakeStorage, **properties: str) -> tuple[list[int], int]:
    """(live data and delete files after each round, data and delete files of all rounds)."""
    world, chance, live = InProcessLakeward(folder, lake), random.Random(9), []
    properties |= {"table.datalake.freshness": f"{FRESHNESS_S} s", "table.datalake.auto-expire-snapshot": "false"}
    world.create(PATH, "id BIGINT NOT NULL, name STRING", primary_key="id", buckets=BUCKETS, **properties)
    try:
        for _ in range(ROUNDS):
            change(world, chance)
            world.clock.advance(FRESHNESS_S)  # type: ignore[attr-defined]
            world.tier(PATH)
            while (handed := world.take(PATH, COMPACT)) is not None:
                world.run(handed)
            totals = lake.open_reader(world.store.load_table(TablePath.parse(PATH))).totals()
            live.append(totals.data_files + totals.delete_files)
        return live, added_files(lake)
    finally:
        world.close()


def added_files(lake: IcebergLakeStorage) -> int:
    snapshots: list[Any] = lake.connection.load(TablePath.parse(PATH)).metadata.snapshots
    of_rounds = [s.summary for s in snapshots if s.summary.operation.value != "replace"]
    return sum(int(s[name] or 0) for s in of_rounds for name in ("added-data-files", "added-delete-files"))


def main() -> None:
    report = Report("live_files")
    for name, properties in (("as by default", {}), ("off", {"table.datalake.auto-compaction": "false"})):
        with (
            tempfile.TemporaryDirectory(prefix="lakeward-bench-") as temporary,
            folder_lake(Path(temporary)) as lake,
            report.measure() as cost,
        ):
            live, written = run(Path(temporary) / "server", lake, **properties)
        report.add(
            f"compaction {name}: live files after {ROUNDS} rounds",
            figure=live[-1],
            unit="files",
            beside=written,
            beside_what="written by rounds",
            cost=cost,
            note=f"at most {max(live)} at any time, {ROUNDS * RATE * FRESHNESS_S} changes over {BUCKETS} buckets",
        )
    report.finish()


if __name__ == "__main__":
    main()
