# SPDX-License-Identifier: Apache-2.0
"""`verify --deep` of 10,539 rows, about one to a file, over 45 buckets, beside a plain read of the same files with
PyArrow.

`LAKEWARD_BENCH_ROWS=500 python -m bench.verify_files` runs a small version.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from bench.report import Report
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import TablePath
from lakeward.verify import verify_table
from tests.kit.iceberg.folder import folder_lake
from tests.kit.inprocess import InProcessLakeward

ROWS, BUCKETS, KEYS = int(os.environ.get("LAKEWARD_BENCH_ROWS", "10539")), 45, 2_000


def fill(folder: Path, lake: IcebergLakeStorage) -> InProcessLakeward:
    """A file for each row and round: a split holds one row."""
    world = InProcessLakeward(folder, lake)
    world.world = replace(world.world, options=replace(world.world.options, target_bytes=1))
    world.create("db.t", "id BIGINT NOT NULL, name STRING", primary_key="id", buckets=BUCKETS)
    for start in range(0, ROWS, 2_000):
        world.upsert("db.t", [{"id": n % KEYS, "name": f"row {n}"} for n in range(start, min(ROWS, start + 2_000))])
        world.tier("db.t")
    return world


def main() -> None:
    report = Report("verify_files")
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as temporary, folder_lake(Path(temporary)) as lake:
        world = fill(Path(temporary) / "server", lake)
        files = sorted(Path(temporary).rglob("data/lw-*.parquet"))
        began = time.perf_counter()
        rows = sum(pq.ParquetFile(f).read().num_rows for f in files)
        plain = time.perf_counter() - began
        with report.measure() as cost:
            began = time.perf_counter()
            certificate = verify_table(
                world.plugin, TablePath("db", "t"), deep=True, clock=world.clock, open_storage=lambda _plan: lake
            )
            took = time.perf_counter() - began
        assert certificate.holds, certificate.all_findings
        world.close()
    report.add(
        f"verify --deep, {len(files)} files",
        figure=took,
        unit="s",
        beside=plain,
        beside_what=f"PyArrow reads them, {rows} rows with those of delete files",
        target="<= 3",
        of="ratio",
        cost=cost,
    )
    report.finish()


if __name__ == "__main__":
    main()
