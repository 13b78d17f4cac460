# SPDX-License-Identifier: Apache-2.0
"""What compaction gives readers and what it costs: scans beside a freshly written table, rewrites beside pyarrow, their
bytes beside the bound of the size classes, their CPU beside the rounds', vectors beside delete files.

All in one process without Spark, rounds and compactions handed out by the coordinator. `python -m bench.maintenance
scan rewrite` runs some cases; `gigabyte`, beside Java Iceberg too, runs only when it is named.
`LAKEWARD_BENCH_ROUNDS=100` and `LAKEWARD_BENCH_SCALE=0.1` make it smaller.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.report import Report
from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.meta.manifests import load_manifests
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import SystemClock, TablePath, set_injector
from lakeward.model.side import COMPACT
from lakeward.protocol.heartbeat import TableFinished
from lakeward_testing.clock import ManualClock
from tests.interop.javaiceberg import start_java
from tests.kit.iceberg.engines import duckdb_connection
from tests.kit.iceberg.folder import folder_options
from tests.kit.iceberg.merge_on_read import MergeOnReadEngine
from tests.kit.iceberg.server import serving
from tests.kit.inprocess import InProcessLakeward

ROUNDS = int(os.environ.get("LAKEWARD_BENCH_ROUNDS", "1000"))
SCALE = float(os.environ.get("LAKEWARD_BENCH_SCALE", "1"))
ROUND_S = 10
"""Between two rounds, on the bench's clock: the freshness at which nobody could leave a table alone."""

REPEATS = 50
EXPIRY = {"iceberg.history.expire.max-snapshot-age-ms": "1000", "iceberg.history.expire.min-snapshots-to-keep": "20"}
FAN_IN = 8


class Yard:
    """A Lakeward whose clock moves by a round's time."""

    def __init__(self, folder: Path) -> None:
        self.options = folder_options(folder)
        self.clock = ManualClock(SystemClock().now_ms())
        self.lake = IcebergLakeStorage(IcebergConnection(self.options, self.clock))
        self.world = InProcessLakeward(folder / "server", self.lake, self.clock)

    def create(self, path: str, *, keyed: bool, **properties: str) -> None:
        columns = "id bigint not null, city string, v double"
        self.world.create(path, columns, primary_key="id" if keyed else "", buckets=1, **properties)

    def tier(self, path: str) -> None:
        for end in self.world.tier(path):
            assert isinstance(end, TableFinished), end

    def files(self, path: str) -> int:
        return len(self._reader(path).files(self._head(path)))

    def shape(self, path: str) -> str:
        """What a reader of the head opens."""
        files = self._reader(path).files(self._head(path))
        deletes = {d.path for f in files for d in f.deletes}
        deleted = sum(len(self._reader(path).deleted_rows(f)) for f in files)
        table = self.lake.connection.load(TablePath.parse(path))
        manifests = len(load_manifests(table.io, table.metadata.current_snapshot()))
        read = f"{len(files)} data and {len(deletes)} delete files, {manifests} manifests"
        return f"{read}, {len(table.metadata.snapshots)} snapshots, {deleted} rows deleted"

    def scan(self, path: str) -> int:
        """Rows that our reader gives, every column."""
        return sum(b.num_rows for b in self._reader(path).scan(self._head(path), columns=["id", "city", "v"]))

    def duckdb_scan(self, connection: Any, path: str) -> Callable[[], object]:
        """Of the head as it is now: where that lies is no question to DuckDB."""
        location = self.lake.connection.load(TablePath.parse(path)).metadata_location
        asked = f"SELECT count(*), sum(v), max(city) FROM iceberg_scan('{location}')"
        return lambda: connection.sql(asked).fetchall()

    def _reader(self, path: str) -> Any:
        return self.lake.open_reader(self.world.store.load_table(TablePath.parse(path)))

    def _head(self, path: str) -> Any:
        head = self._reader(path).load_snapshot()
        assert head is not None
        return head.snapshot_id

    def close(self) -> None:
        self.world.close()
        self.lake.connection.close()


@contextmanager
def opened() -> Iterator[Yard]:
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as folder:
        yard = Yard(Path(folder))
        try:
            yield yard
        finally:
            yard.close()


def rows(ids: Sequence[int] | np.ndarray[Any, Any], seed: int = 0) -> pa.Table:
    chance, ids = np.random.default_rng(seed), np.asarray(ids, np.int64)
    cities = pa.array([f"city-{i}" for i in range(200)]).take(pa.array(chance.integers(0, 200, len(ids))))
    return pa.table({"id": ids, "city": cities, "v": chance.random(len(ids))})


def best_s(call: Callable[[], object]) -> float:
    """CPU seconds of the quickest call: whatever else the machine does only adds to them."""
    return best_in_turn(call)[0]


def best_in_turn(*calls: Callable[[], object]) -> list[float]:
    """As `best_s`, of calls that are set beside each other: one after the other, so that a busy minute is of all."""
    took = [list[float]() for _ in calls]
    for _ in range(1 + REPEATS):
        for call, times in zip(calls, took, strict=True):
            began = time.process_time()
            call()
            times.append(time.process_time() - began)
    return [min(times[1:]) for times in took]


@dataclass
class Spent:
    """CPU seconds of rounds and of compactions; rows that each wrote; groups that were dropped."""

    rounds_s: float = 0.0
    compactions_s: float = 0.0
    rows: int = 0
    rewritten: int = 0
    groups: int = 0
    left_out: int = 0
    carried: int = 0
    compactions: int = 0
    rebased: int = 0

    def round(self, yard: Yard, path: str) -> None:
        began = time.process_time()
        for end in yard.world.tier(path):
            assert isinstance(end, TableFinished), end
            assert end.result is not None
            self.rows += end.result.rows
        self.rounds_s += time.process_time() - began
        yard.clock.advance(ROUND_S)

    def compact(self, yard: Yard, path: str, beside: Callable[[], None] | None = None) -> None:
        """As often as the coordinator hands one out. `beside` comes while the first is between write and commit."""
        while (handed := yard.world.take(path, COMPACT)) is not None:
            began, other = time.process_time(), 0.0

            def meet(point: str, _facts: dict[str, Any]) -> None:
                nonlocal beside, other
                if point == "compact.written" and beside is not None:
                    act, beside = beside, None
                    at = time.process_time()
                    act()
                    other += time.process_time() - at
                    self.rebased += 1

            before = set_injector(meet)
            try:
                end = yard.world.run(handed)
            finally:
                set_injector(before)
            assert isinstance(end, TableFinished), end
            self.compactions_s += time.process_time() - began - other
            if end.result is not None:
                self.rewritten += end.result.rows
                self.groups += end.result.files + end.result.groups_left_out
                self.left_out += end.result.groups_left_out
                self.carried += end.result.deletes
                self.compactions += 1
            yard.clock.advance(ROUND_S)


# ---- cases -----------------------------------------------------------------------------------------------------------
def scan(report: Report) -> None:
    """Ten rounds of 500 updates and 500 deletes on 10,000 rows, then maintenance.

    Of both tables readers open one data file. What DuckDB spends more on the worn one goes to what the compaction says
    of the files that it took away (two thirds to the manifest of delete files, a quarter to entries of data files), and
    a fifth to the summaries of the snapshots before. Other engines' expiry goes by those entries, so they are written;
    the next commit leaves them out. Without the columns' counts and bounds in them it would be 1.34 x: other engines'
    reads of what changed leave files out by these, so they stay."""
    with opened() as yard, duckdb_connection() as duckdb:
        yard.create("b.worn", keyed=True)
        live = np.arange(10_000)
        yard.world.upsert("b.worn", rows(live))
        yard.tier("b.worn")
        chance = np.random.default_rng(3)
        for number in range(10):
            gone, changed = np.split(chance.permutation(live)[:1_000], 2)
            yard.world.delete("b.worn", pa.table({"id": gone}))
            yard.world.upsert("b.worn", rows(changed, number))
            live = np.setdiff1d(live, gone)
            yard.tier("b.worn")
            yard.clock.advance(ROUND_S)
        readers: dict[str, Callable[[str], Callable[[], object]]] = {
            "ours": lambda path: partial(yard.scan, path),
            "DuckDB": partial(yard.duckdb_scan, duckdb),
        }
        before = {name: best_s(scan_of("b.worn")) for name, scan_of in readers.items()}
        yard.world.compact("b.worn")
        yard.create("b.fresh", keyed=True)
        yard.world.upsert("b.fresh", yard.world.read("b.worn").to_table().select(["id", "city", "v"]))
        yard.tier("b.fresh")
        assert yard.scan("b.worn") == yard.scan("b.fresh") == len(live)
        shape = yard.shape("b.worn")
        for name, scan_of in readers.items():
            with report.measure() as cost:
                worn, fresh = best_in_turn(scan_of("b.worn"), scan_of("b.fresh"))
            report.add(
                f"scan after 10 rounds and maintenance, {name}",
                figure=1_000 * worn,
                unit="ms",
                beside=1_000 * fresh,
                beside_what="freshly written",
                target="<= 1.3",
                of="ratio",
                cost=cost,
                note=f"{shape}; before maintenance: {before[name] / fresh:.1f} x",
            )


def rounds(report: Report) -> None:
    """A hundred new rows a second at a freshness of ten seconds."""
    for keyed in (False, True):
        _rounds(report, 1_000, keyed=keyed)


def trickle(report: Report) -> None:
    """Ten new rows a second: the table is a megabyte in the end, and readers open files more than they read."""
    for keyed in (False, True):
        _rounds(report, 100, keyed=keyed)


def _rounds(report: Report, new_rows: int, *, keyed: bool) -> None:
    """Rounds with maintenance on, in a PK table half as many changes beside the new rows; a round lands inside every
    fourth compaction."""
    what, path, spent = f"{'PK' if keyed else 'log'}, {new_rows:,} rows a round", "b.kept", Spent()
    with opened() as yard, duckdb_connection() as duckdb:
        yard.create(path, keyed=keyed, **EXPIRY)
        side = yard.world.coordinator.board.find(TablePath.parse(path))
        put = yard.world.upsert if keyed else yard.world.append
        written, most, chance = 0, 0, np.random.default_rng(7)

        def turn() -> None:
            nonlocal written
            fresh = np.arange(written, written + new_rows)
            changed = chance.integers(0, written, new_rows // 2) if keyed and written else np.empty(0, np.int64)
            put(path, rows(np.unique(np.concatenate([changed, fresh])), written))
            written += new_rows
            spent.round(yard, path)

        with report.measure() as cost:
            number = 0
            while number < ROUNDS:
                turn()
                number += 1
                spent.compact(yard, path, turn if spent.compactions % 4 == 3 else None)
                most = max(most, yard.files(path))
                if number % 50 == 0:
                    yard.world.coordinator.upkeep.expire(side)
        yard.create("b.fresh", keyed=keyed)
        (yard.world.upsert if keyed else yard.world.append)("b.fresh", yard.world.read(path).to_table())
        yard.tier("b.fresh")
        assert yard.scan(path) == yard.scan("b.fresh") == written
        kept_s, fresh_s = best_in_turn(*(partial(yard.scan, p) for p in (path, "b.fresh")))
        duck_s = best_in_turn(*(yard.duckdb_scan(duckdb, p) for p in (path, "b.fresh")))
        shape = yard.shape(path)
    name = f"{ROUNDS} rounds with maintenance on, {what}"
    facts: list[dict[str, Any]] = [
        {
            "case": f"scan after {name}",
            "figure": 1_000 * kept_s,
            "unit": "ms",
            "beside": 1_000 * fresh_s,
            "beside_what": "freshly written",
            "target": "<= 1.5",
            "of": "ratio",
            "note": f"{shape}; DuckDB: {duck_s[0] / duck_s[1]:.2f} x",
        },
        {
            "case": f"CPU of maintenance, {name}",
            "figure": spent.compactions_s,
            "unit": "CPU s",
            "beside": spent.rounds_s,
            "beside_what": "CPU of the rounds",
            "target": "<= 0.5",
            "of": "ratio",
        },
        {"case": f"most data files of the bucket, {name}", "figure": most, "unit": "files", "target": "<= 40"},
        {
            "case": f"groups thrown away, {name}",
            "figure": 100 * spent.left_out / max(1, spent.groups),
            "unit": "%",
            "target": "<= 2",
            "note": f"{spent.compactions} compactions, of which {spent.rebased} met a round and went on upon it; "
            f"{spent.carried} deletes were carried over",
        },
    ]
    if not keyed:
        facts.append(
            {
                "case": f"rows rewritten per row, {name}",
                "figure": spent.rewritten / spent.rows,
                "unit": "x",
                "beside": math.log(ROUNDS, FAN_IN),
                "beside_what": f"log{FAN_IN}({ROUNDS}), the bound of the classes",
                "target": "<= 1.2",
                "of": "ratio",
            }
        )
    for fact in facts:
        report.add(fact.pop("case"), cost=cost, **fact)


def rewrite(report: Report) -> None:
    """Small files with a tenth of their rows deleted, rewritten by us and by pyarrow alone, both with one thread."""
    count, parts = int(10_000_000 * SCALE), 64
    with opened() as yard, tempfile.TemporaryDirectory() as scratch:
        inputs = _make_worn(yard, count, parts)
        size = sum(p.stat().st_size for p in inputs)
        options = replace(yard.world.world.options, compaction_bytes=1 << 40)
        yard.world.world = replace(yard.world.world, options=options)
        with report.measure() as cost:
            began = time.process_time()
            end = yard.world.compact("b.worn")
            ours_s = time.process_time() - began
        assert isinstance(end, TableFinished)
        assert end.result is not None
        began = time.process_time()
        _copy(inputs, Path(scratch) / "copy.parquet")
        alone_s = time.process_time() - began
        kept = end.result.rows
    report.add(
        f"rewrite of {size / 1e9:.2f} GB in {parts} files, a tenth of the rows deleted",
        figure=kept / ours_s / 1e6,
        unit="M rows per CPU s",
        beside=kept / alone_s / 1e6,
        beside_what="pyarrow reading and writing the same rows",
        target=">= 0.7",
        of="ratio",
        cost=cost,
    )


def _make_worn(yard: Yard, count: int, parts: int) -> list[Path]:
    yard.create("b.worn", keyed=True)
    for number in range(parts):
        first, last = count * number // parts, count * (number + 1) // parts
        for at in range(first, last, 100_000):
            yard.world.upsert("b.worn", rows(np.arange(at, min(last, at + 100_000)), at))
        yard.tier("b.worn")
    for at in range(0, count, 1_000_000):
        yard.world.delete("b.worn", pa.table({"id": np.arange(at, min(count, at + 1_000_000), 10)}))
    yard.tier("b.worn")
    found = yard._reader("b.worn").files(yard._head("b.worn"))
    return [Path(f.path.removeprefix("file://")) for f in found]


def gigabyte(report: Report) -> None:
    """As `rewrite`, of a gigabyte in wide rows, and beside Java Iceberg's `rewrite_data_files` in Spark 4.1 on the same
    files: each has its own copy of the table."""
    count, parts = int(11_000_000 * SCALE), 64
    with opened() as yard, tempfile.TemporaryDirectory() as scratch:
        inputs = {path: _make_wide(yard, path, count, parts) for path in ("b.worn", "b.peer")}
        size = sum(p.stat().st_size for p in inputs["b.worn"])
        yard.world.world = replace(
            yard.world.world, options=replace(yard.world.world.options, compaction_bytes=1 << 40)
        )
        with report.measure() as cost:
            began = time.process_time()
            end = yard.world.compact("b.worn")
            ours_s = time.process_time() - began
        assert isinstance(end, TableFinished)
        assert end.result is not None
        began = time.process_time()
        _copy(inputs["b.worn"], Path(scratch) / "copy.parquet")
        peers = {"pyarrow reading and writing the same rows": (time.process_time() - began, ">= 0.7")}
        with serving(yard.options) as url, start_java(url) as java:
            java.sql("SELECT count(*) FROM lake.b.peer")  # what starts Spark up is not the rewrite's
            before = tree_cpu_s(java.pid)
            java.sql("CALL lake.system.rewrite_data_files(table => 'b.peer', options => map('rewrite-all', 'true'))")
            peers["Java Iceberg's rewrite_data_files"] = (tree_cpu_s(java.pid) - before, ">= 2")
    for peer, (seconds, target) in peers.items():
        report.add(
            f"rewrite of {size / 1e9:.2f} GB in {parts} files, a tenth of the rows deleted, beside {peer}",
            figure=end.result.rows / ours_s / 1e6,
            unit="M rows per CPU s",
            beside=end.result.rows / seconds / 1e6,
            beside_what=peer,
            target=target,
            of="ratio",
            cost=cost,
        )


def _make_wide(yard: Yard, path: str, count: int, parts: int) -> list[Path]:
    """Twelve numbers that do not compress in each row of a log table; another engine deletes every tenth row."""
    names = [f"v{n}" for n in range(12)]
    yard.world.create(path, ", ".join(["id bigint not null", *(f"{n} double" for n in names)]), buckets=1)
    chance = np.random.default_rng(1)
    for number in range(parts):
        ids = np.arange(count * number // parts, count * (number + 1) // parts)
        for at in range(0, len(ids), 50_000):
            part = ids[at : at + 50_000]
            yard.world.append(path, pa.table({"id": part, **{n: chance.random(len(part)) for n in names}}))
        yard.tier(path)
    found = yard._reader(path).files(yard._head(path))
    every_tenth = {f.path: list(range(0, f.record_count, 10)) for f in found}
    MergeOnReadEngine(yard.lake.connection.catalog, TablePath.parse(path)).delete_rows(every_tenth)
    return [Path(f.path.removeprefix("file://")) for f in found]


def tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process and of all that it started."""
    parents, ticks = dict[int, int](), dict[int, int]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
            ticks[int(stat.parent.name)] = int(fields[11]) + int(fields[12])
    family = {pid}
    while more := {p for p, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(ticks.get(p, 0) for p in family) / os.sysconf("SC_CLK_TCK")


def _copy(inputs: Sequence[Path], out: Path) -> None:
    """Nine tenths of the rows: what a rewrite has to read and to write at the least."""
    writer: pq.ParquetWriter | None = None
    for path in inputs:
        for batch in pq.ParquetFile(path).iter_batches(65_536, use_threads=False):
            table = pa.Table.from_batches([batch])
            ids = table.column("id").to_numpy()
            table = table.filter(pa.array(ids % 10 != 0))
            writer = writer or pq.ParquetWriter(out, table.schema, compression="zstd")
            writer.write_table(table)
    if writer is not None:
        writer.close()


def vectors(report: Report) -> None:
    """A fifth of a table's keys change in one round, with delete files and with deletion vectors."""
    keys, changed = int(1_000_000 * SCALE), int(200_000 * SCALE)
    spent: dict[str, float] = {}
    with opened() as yard, report.measure() as cost:
        for version in ("2", "3"):
            path = f"b.v{version}"
            yard.create(path, keyed=True, **{"iceberg.format-version": version})
            for at in range(0, keys, 100_000):
                yard.world.upsert(path, rows(np.arange(at, min(keys, at + 100_000)), at))
            yard.tier(path)
            took = []
            for turn in range(3):
                chosen = np.random.default_rng(turn).choice(keys, changed, replace=False)
                yard.world.upsert(path, rows(np.sort(chosen), turn))
                began = time.process_time()
                yard.tier(path)
                took.append(time.process_time() - began)
            spent[version] = statistics.median(took)
    report.add(
        f"upsert round of {changed:,} of {keys:,} keys, version 3",
        figure=spent["3"],
        unit="CPU s",
        beside=spent["2"],
        beside_what="version 2",
        target="<= 1.2",
        of="ratio",
        cost=cost,
    )


CASES: dict[str, Callable[[Report], None]] = {
    "scan": scan,
    "rounds": rounds,
    "trickle": trickle,
    "rewrite": rewrite,
    "vectors": vectors,
}
NAMED: dict[str, Callable[[Report], None]] = {"gigabyte": gigabyte}
"""Minutes each, and gigabytes of disk."""


def main() -> None:
    report = Report("maintenance")
    for name in sys.argv[1:] or CASES:
        {**CASES, **NAMED}[name](report)
    made = {r.case for r in report.results}
    report.finish(keep=lambda case: len(sys.argv) > 1 and case not in made)


if __name__ == "__main__":
    main()
