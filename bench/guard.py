# SPDX-License-Identifier: Apache-2.0
"""Five small benchmarks as ratios of CPU time to a peer in the same run, compared with the committed ratios.

`make bench-guard` fails where a ratio is above `TOLERANCE` times the committed one; ARGS=--update commits today's. All
run in one process without Spark, so that a busy machine changes both sides alike."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog

from bench.lineitem import lineitem
from bench.report import FOLDER, Report
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import Bucket, SystemClock, TableInfo
from lakeward.spi import load_lake
from tests.kit.inprocess import InProcessLakeward

COLUMNS = (
    "l_orderkey bigint, l_partkey bigint, l_suppkey int, l_linenumber int, l_quantity double, l_extendedprice double, "
    "l_discount double, l_tax double, l_returnflag string, l_linestatus string, l_shipdate date, l_shipmode string, "
    "l_comment string"
)
ROWS, BATCH, SMALL_ROUNDS, TURNS = 400_000, 8_192, 15, 5
TOLERANCE = 1.35
"""Medians of five turns swung by up to 1.2 between runs on a machine with a load of 15 on two cores."""

COMMITTED = FOLDER / "results" / "guard.json"
B0 = Bucket("", 0)


@dataclass(frozen=True)
class Case:
    """`ours` and `peer` do the same work once, on rows that are there."""

    name: str
    peer_name: str
    ours: Callable[[], object]
    peer: Callable[[], object]


class Guard:
    """A whole Lakeward in this process, and what its peers need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        options = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        self.lake = cast(IcebergLakeStorage, load_lake("iceberg", options))
        self.world = InProcessLakeward(folder / "server", self.lake, SystemClock())
        self.rows = lineitem(0, ROWS)
        self.batches = self.rows.combine_chunks().to_batches(max_chunksize=BATCH)
        self.few = lineitem(ROWS, 10)
        self.made = 0
        self.waiting: list[TableInfo] = []
        """Tables that no round has tiered yet."""

    def close(self) -> None:
        self.world.close()
        self.lake.connection.close()

    def cases(self) -> list[Case]:
        filled = self.filled()
        tiered = self.filled()
        self.world.tier(str(tiered.path))
        self.world.append(str(tiered.path), self.few)
        self.waiting = [self.filled() for _ in range(TURNS + 1)]
        small, peer = self.new_table(), self.peer_table()
        self.write_ipc()
        return [
            Case("append to the log", "pyarrow writes IPC", self.filled, self.write_ipc),
            Case("read the log", "pyarrow reads IPC", partial(self.read_log, filled), self.read_ipc),
            Case("round of a log table", "pyarrow writes Parquet", self.tier_new, self.write_parquet),
            Case("small rounds", "PyIceberg appends", partial(self.tier_few, small), partial(self.append_few, peer)),
            Case(
                "union read",
                "pyarrow.dataset over the lake files",
                partial(self.read_union, tiered),
                partial(self.read_files, tiered),
            ),
        ]

    # ---- ours --------------------------------------------------------------------------------------------------------
    def new_table(self) -> TableInfo:
        self.made += 1
        return self.world.create(f"bench.t{self.made}", COLUMNS)

    def filled(self) -> TableInfo:
        table = self.new_table()
        for batch in self.batches:
            self.world.store.append(table, B0, batch)
        return table

    def read_log(self, table: TableInfo) -> int:
        return sum(batch.num_rows for batch in self.world.store.read_log(table, B0, 0, ROWS))

    def tier_new(self) -> None:
        self.world.tier(str(self.waiting.pop().path))

    def tier_few(self, table: TableInfo) -> None:
        for _ in range(SMALL_ROUNDS):
            self.world.append(str(table.path), self.few)
            self.world.tier(str(table.path))

    def read_union(self, table: TableInfo) -> None:
        assert self.world.read(str(table.path)).to_table().num_rows == ROWS + self.few.num_rows

    # ---- peers -------------------------------------------------------------------------------------------------------
    def write_ipc(self) -> None:
        with pa.OSFile(str(self.folder / "peer.arrow"), "wb") as file, pa.ipc.new_file(file, self.rows.schema) as out:
            for batch in self.batches:
                out.write_batch(batch)

    def read_ipc(self) -> int:
        with pa.OSFile(str(self.folder / "peer.arrow")) as file:
            return int(pa.ipc.open_file(file).read_all().num_rows)

    def write_parquet(self) -> None:
        pq.write_table(self.rows, self.folder / "peer.parquet", compression="zstd")

    def peer_table(self) -> Catalog:
        catalog = load_catalog(
            "peer", type="sql", uri=f"sqlite:///{self.folder}/peer.db", warehouse=f"file://{self.folder}/peer"
        )
        catalog.create_namespace("db")
        catalog.create_table("db.t", self.few.schema)
        return catalog

    def append_few(self, catalog: Catalog) -> None:
        table = catalog.load_table("db.t")
        for _ in range(SMALL_ROUNDS):
            table.append(self.few)

    def read_files(self, table: TableInfo) -> None:
        files = [str(f) for f in (self.folder / "warehouse").rglob("*.parquet") if f"/{table.path.table}/" in str(f)]
        assert ds.dataset(files).to_table(columns=self.rows.schema.names).num_rows == ROWS


def cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def measure(case: Case) -> tuple[float, float, float]:
    """Medians of ours and of the peer's, and of the turns' ratios; the first turn warms up."""
    turns = []
    for turn in range(TURNS + 1):
        first, second = (case.ours, case.peer) if turn % 2 else (case.peer, case.ours)
        spent = {first: cpu_s(first), second: cpu_s(second)}
        turns.append((spent[case.ours], spent[case.peer]))
    ours, peers = zip(*turns[1:], strict=True)
    return (
        statistics.median(ours),
        statistics.median(peers),
        statistics.median(a / b for a, b in zip(ours, peers, strict=True)),
    )


def main(*, is_update: bool) -> int:
    committed = {r["case"]: r["ratio"] for r in json.loads(COMMITTED.read_text())} if COMMITTED.exists() else {}
    report = Report("guard", folder=COMMITTED.parent)
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as folder:
        guard = Guard(Path(folder))
        try:
            for case in guard.cases():
                ours, peer, ratio = measure(case)
                limit = None if is_update or case.name not in committed else committed[case.name] * TOLERANCE
                report.add(
                    case.name,
                    figure=ours,
                    unit="CPU s",
                    beside=ours / ratio,
                    beside_what=case.peer_name,
                    target=None if limit is None else f"<= {limit:.3f}",
                    of="ratio",
                    note=f"median of {TURNS} turns' ratios; the peer's own median is {peer:.3g} CPU s",
                )
        finally:
            guard.close()
    if is_update:
        report.finish()
    slower = [r.case for r in report.results if r.met is False]
    if slower:
        print(f"slower than {TOLERANCE} times the committed ratio: {', '.join(slower)}", file=sys.stderr)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main(is_update="--update" in sys.argv[1:]))
