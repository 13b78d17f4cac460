# SPDX-License-Identifier: Apache-2.0
"""The Iceberg lake: writer, upserts, commits over many rounds, scans after deletes, a writer's memory.

`python -m bench.iceberg 0.1` runs a tenth of the sizes; `python -m bench.iceberg scan memory` some of the cases, and
keeps what is stored of the others.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO, _dataframe_to_data_files

from bench.report import Cost, Report
from lakeward.changelog import Fold
from lakeward.lake.encoding import dictionary_columns
from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.datafile.parquet import ParquetOptions
from lakeward.lake.iceberg.datafile.result import WriteHandle
from lakeward.lake.iceberg.meta.types import to_arrow_schema
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import (
    CHANGE_TYPE,
    OFFSET,
    PREV_OFFSET,
    TIMESTAMP,
    Bucket,
    ChangeType,
    Column,
    ExpiringSnapshot,
    LogSplit,
    OffsetRange,
    Schema,
    TableDescriptor,
    TableInfo,
    TablePath,
    new_round_id,
    new_table_id,
    parse_type,
)
from lakeward.spi import CommitProperties, LakeStorage, Precondition, WriteTask
from lakeward_testing.clock import ManualClock
from tests.kit.iceberg.engines import duckdb_connection

BATCH_ROWS = 65_536
BUCKETS = 4
COLUMNS = {
    "k": "BIGINT NOT NULL",
    "quantity": "INT",
    "price": "DECIMAL(12, 2)",
    "discount": "DOUBLE",
    "flag": "STRING",
    "mode": "STRING",
    "comment": "STRING",
    "shipped": "DATE",
    "changed": "TIMESTAMP(6)",
    "supplier": "BIGINT",
}


def table_info(name: str, *, pk: bool, buckets: int = BUCKETS) -> TableInfo:
    schema = Schema(columns=tuple(Column(name=n, type=parse_type(t)) for n, t in COLUMNS.items()))
    key = ("k",) if pk else ()
    descriptor = TableDescriptor(schema=schema, primary_key=key, bucket_count=buckets)
    return TableInfo(path=TablePath("bench", name), table_id=new_table_id(), descriptor=descriptor)


class Columns:
    """Ten columns like an order line's, made from keys; a pool of texts is made once."""

    def __init__(self, seed: int = 1) -> None:
        self._chance = np.random.default_rng(seed)
        self._comments = pa.array([f"order {i:06d} {'.' * (i % 30)}" for i in range(20_000)])
        self._flags, self._modes = pa.array(["A", "N", "R"]), pa.array(["AIR", "RAIL", "SHIP", "TRUCK", "MAIL"])

    def make(self, keys: np.ndarray) -> list[pa.Array]:
        n, chance = len(keys), self._chance
        return [
            pa.array(keys),
            pa.array(chance.integers(1, 50, n, dtype=np.int32)),
            pa.array(chance.integers(100, 10_000_00, n))
            .cast(pa.decimal128(20, 0))
            .cast(pa.decimal128(22, 2))
            .cast(pa.decimal128(12, 2)),
            pa.array(chance.random(n)),
            self._flags.take(pa.array(chance.integers(0, 3, n))),
            self._modes.take(pa.array(chance.integers(0, 5, n))),
            self._comments.take(pa.array(chance.integers(0, 20_000, n))),
            pa.array(chance.integers(8_000, 12_000, n, dtype=np.int32)).cast(pa.date32()),
            pa.array(1_700_000_000_000_000 + np.arange(n) * 1_000).cast(pa.timestamp("us")),
            pa.array(chance.integers(0, 10_000, n)),
        ]


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """A log's batches. Eight are made and used in turn with their own offsets: making data is not measured."""
    columns = Columns()
    pool = [columns.make(np.arange(i * BATCH_ROWS, (i + 1) * BATCH_ROWS)) for i in range(8)]
    names = [*COLUMNS, OFFSET, TIMESTAMP]
    at = pa.array(np.full(BATCH_ROWS, 1_700_000_000_000), pa.timestamp("ms", "UTC"))
    for number, start in enumerate(range(0, rows, BATCH_ROWS)):
        size = min(BATCH_ROWS, rows - start)
        offsets = pa.array(np.arange(start, start + BATCH_ROWS))
        yield pa.RecordBatch.from_arrays([*pool[number % 8], offsets, at], names=names).slice(0, size)


@contextmanager
def new_lake(clock: ManualClock | None = None) -> Iterator[IcebergLakeStorage]:
    folder = Path(tempfile.mkdtemp(prefix="lakeward-bench-"))
    options = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    lake = IcebergLakeStorage(IcebergConnection(options, clock))
    try:
        yield lake
    finally:
        lake.connection.close()
        shutil.rmtree(folder, ignore_errors=True)


def task(table: TableInfo, handle: bytes, start: int, stop: int, bucket: int = 0) -> WriteTask:
    split = LogSplit(bucket=Bucket("", bucket), range=OffsetRange(start, stop))
    return WriteTask(round_id=new_round_id(), table=table, split=split, attempt=0, handle=handle)


# ---- writer ----------------------------------------------------------------------------------------------------------
def write_with_us(lake: IcebergLakeStorage, table: TableInfo, source: list[pa.RecordBatch], rows: int) -> None:
    writer = lake.open_writer(task(table, lake.open_committer(table).begin(new_round_id()), 0, rows))
    for batch in source:
        writer.write(batch)
    assert writer.complete() is not None


def write_plainly(lake: IcebergLakeStorage, table: TableInfo, source: list[pa.Table], path: str) -> None:
    """The same encodings, row groups and columns, and nothing else."""
    handle = WriteHandle.of(lake.connection.load(table.path))
    options, schema = ParquetOptions.parse(handle.properties), to_arrow_schema(handle.schema)
    chosen = dictionary_columns(source[0])
    with pq.ParquetWriter(path, schema, compression=options.codec, use_dictionary=chosen, store_schema=False) as writer:
        for group in source:
            writer.write_table(group, row_group_size=group.num_rows)


def bench_writer(report: Report, rows: int) -> None:
    with new_lake() as lake:
        table = table_info("writer", pk=False)
        lake.catalog().create(table)
        source = list(batches(rows))
        schema = to_arrow_schema(lake.connection.load(table.path).schema())
        options = ParquetOptions.parse({})
        whole = pa.Table.from_batches(source)
        whole = (
            whole.append_column("__bucket", pa.repeat(pa.scalar(0, pa.int32()), rows)).select(schema.names).cast(schema)
        )
        step = min(options.row_group_rows, max(1, options.row_group_bytes * rows // whole.nbytes))
        groups = [whole.slice(at, step).combine_chunks() for at in range(0, rows, step)]
        folder = Path(tempfile.mkdtemp(prefix="lakeward-bench-"))
        ours = lambda: write_with_us(lake, table, source, rows)  # noqa: E731
        plain = lambda: write_plainly(lake, table, groups, str(folder / "plain.parquet"))  # noqa: E731
        spent = [(_cpu(ours), _cpu(plain)) for _ in range(5)]
        mine, theirs = min(s[0] for s in spent), min(s[1] for s in spent)
        shutil.rmtree(folder)
    report.add(
        f"writer, {rows:,} rows x 10 columns, rows per CPU s",
        figure=rows / mine,
        unit="rows/s",
        beside=rows / theirs,
        beside_what="pyarrow.parquet.ParquetWriter with the same encodings",
        target=">= 0.85",
        of="ratio",
        cost=Cost(cpu_s=mine),
    )


def _cpu(action: Callable[[], object]) -> float:
    before = time.process_time()
    action()
    return time.process_time() - before


# ---- upserts ---------------------------------------------------------------------------------------------------------
class ChangelogMaker:
    """A PK table's changelog, made with arrays: each key's row offset is known, so `__prev_offset` is."""

    def __init__(self, keys: int, buckets: int = BUCKETS) -> None:
        self.buckets, self.per_bucket = buckets, keys // buckets
        self.last = np.full((buckets, self.per_bucket), -1, np.int64)
        self.ends = np.zeros(buckets, np.int64)
        self._columns = Columns(2)

    def load(self, bucket: int) -> pa.RecordBatch:
        offsets = np.arange(self.per_bucket)
        self.last[bucket], self.ends[bucket] = offsets, self.per_bucket
        kinds = np.full(self.per_bucket, int(ChangeType.INSERT), np.int8)
        return self._batch(bucket, np.arange(self.per_bucket), offsets, kinds, None)

    def change(self, bucket: int, count: int, chance: np.random.Generator) -> pa.RecordBatch:
        """Updates of different keys: each a -U and a +U."""
        keys = chance.choice(self.per_bucket, count, replace=False)
        previous = np.repeat(self.last[bucket][keys], 2)
        offsets = self.ends[bucket] + np.arange(2 * count)
        kinds = np.tile(np.array([ChangeType.UPDATE_BEFORE, ChangeType.UPDATE_AFTER], np.int8), count)
        self.last[bucket][keys] = offsets[1::2]
        self.ends[bucket] += 2 * count
        return self._batch(bucket, np.repeat(keys, 2), offsets, kinds, previous)

    def _batch(
        self, bucket: int, keys: np.ndarray, offsets: np.ndarray, kinds: np.ndarray, previous: np.ndarray | None
    ) -> pa.RecordBatch:
        at = pa.array(np.full(len(keys), 1_700_000_000_000), pa.timestamp("ms", "UTC"))
        prev = pa.nulls(len(keys), pa.int64()) if previous is None else pa.array(previous)
        arrays = [*self._columns.make(keys * self.buckets + bucket), pa.array(offsets), at, pa.array(kinds), prev]
        return pa.RecordBatch.from_arrays(arrays, names=[*COLUMNS, OFFSET, TIMESTAMP, CHANGE_TYPE, PREV_OFFSET])


def run_round(lake: LakeStorage, table: TableInfo, changes: dict[int, pa.RecordBatch]) -> None:
    """Fold, write, resolve, commit, as a job with one task does it."""
    reader, committer, round_id = lake.open_reader(table), lake.open_committer(table), new_round_id()
    base, handle = reader.load_base(), committer.begin(round_id)
    results, replaced, stops = [], {}, {}
    for number, batch in changes.items():
        bucket = Bucket("", number)
        start, stop = base.offsets.get(bucket, 0), batch.column(OFFSET)[-1].as_py() + 1
        fold = Fold(start, stop)
        parts = [batch.slice(at, BATCH_ROWS) for at in range(0, batch.num_rows, BATCH_ROWS)]
        for part in parts:
            fold.see(part)
        fold.seal()
        writer = lake.open_writer(task(table, handle, start, stop, number))
        for part in parts:
            writer.write(fold.live(part))
        made = writer.complete()
        results += [made] if made is not None else []
        replaced[bucket], stops[bucket] = fold.replaced_below, stop
    properties = CommitProperties(round_id=round_id, epoch=1, job="bench", offsets=stops)
    ready = committer.prepare(results, replaced, base, properties)
    committer.commit(
        ready, Precondition(table_id=table.table_id, token=base.token, starts={b: base.offsets.get(b) for b in stops})
    )


def bench_upserts(report: Report, scale: float) -> None:
    spent = {keys: _upsert_cost(int(keys * scale), int(200_000 * scale)) for keys in (1_000_000, 4_000_000)}
    stock_keys, stock_cpu = _stock_upsert(max(1_000, int(1_000_000 * scale)))
    report.add(
        f"upsert of 200 k of 1 M keys x {scale:g}, 10 columns: fold, write, resolve, commit",
        figure=spent[1_000_000],
        unit="CPU s",
        beside=stock_cpu,
        beside_what=f"PyIceberg table.upsert of {stock_keys // 5:,} of {stock_keys:,} keys",
        target="<= 0.5",
        cost=Cost(cpu_s=spent[1_000_000]),
    )
    report.add(
        f"the same of 4 M keys x {scale:g}",
        figure=spent[4_000_000],
        unit="CPU s",
        beside=spent[1_000_000],
        beside_what="of 1 M keys",
        target="<= 1.2",
        of="ratio",
        cost=Cost(cpu_s=spent[4_000_000]),
    )


def _upsert_cost(keys: int, changed: int) -> float:
    """CPU seconds of a round that changes so many keys, after a first round that loaded them all."""
    with new_lake() as lake:
        table, maker, chance = table_info("upserts", pk=True), ChangelogMaker(keys), np.random.default_rng(5)
        lake.catalog().create(table)
        run_round(lake, table, {b: maker.load(b) for b in range(BUCKETS)})
        costs = []
        for _ in range(4):
            changes = {b: maker.change(b, changed // BUCKETS, chance) for b in range(BUCKETS)}
            costs.append(_cpu(partial(run_round, lake, table, changes)))
    return sorted(costs)[1]


def _stock_upsert(keys: int) -> tuple[int, float]:
    folder = Path(tempfile.mkdtemp(prefix="lakeward-bench-"))
    catalog = SqlCatalog("stock", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    catalog.create_namespace("bench")
    rows = pa.table(Columns().make(np.arange(keys)), names=list(COLUMNS))
    table = catalog.create_table("bench.t", rows.schema)
    table.append(rows)
    changed = rows.slice(0, keys // 5).set_column(1, "quantity", pa.array(np.full(keys // 5, 77, np.int32)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spent = _cpu(lambda: table.upsert(changed, join_cols=["k"]))
    catalog.close()
    shutil.rmtree(folder)
    return keys, spent


# ---- commits ---------------------------------------------------------------------------------------------------------
def bench_commits(report: Report, rounds: int) -> None:
    ours, expiry = _our_commits(rounds)
    stock = _stock_commits(rounds)
    marks = sorted({1, min(100, rounds), rounds})
    at = {m: _around(ours, m) for m in marks}
    for mark in marks:
        report.add(
            f"commit at round {mark}, expiry in it",
            figure=at[mark] * 1000,
            unit="ms CPU",
            beside=_around(stock, mark) * 1000,
            beside_what="PyIceberg fast_append",
        )
    report.add(
        f"commit at round {rounds} against the first",
        figure=at[rounds] * 1000,
        unit="ms CPU",
        beside=at[1] * 1000,
        beside_what="the first",
        target="<= 2",
        of="ratio",
    )
    last = _around(stock, rounds) * 1000
    report.add(
        f"commit at round {rounds} against PyIceberg",
        figure=at[rounds] * 1000,
        unit="ms CPU",
        beside=last,
        beside_what="fast_append",
        target="<= 0.2",
        of="ratio",
    )
    report.add("deleting the files of expired snapshots, per round", figure=sum(expiry) / rounds * 1000, unit="ms CPU")


def _our_commits(rounds: int) -> tuple[list[float], list[float]]:
    clock = ManualClock(now_ms=int(time.time() * 1000))
    commits, expiry = [], []
    gone: list[ExpiringSnapshot] = []
    with new_lake(clock) as lake:
        table = table_info("commits", pk=False)
        lake.catalog().create(table)
        reader, committer, bucket = lake.open_reader(table), lake.open_committer(table), Bucket("", 0)
        source = next(batches(10))
        upkeep = lake.open_maintenance(table)
        for number in range(rounds):
            round_id = new_round_id()
            writer = lake.open_writer(task(table, committer.begin(round_id), number * 10, number * 10 + 10))
            moved = source.set_column(source.schema.names.index(OFFSET), OFFSET, pa.array(np.arange(10) + number * 10))
            writer.write(moved)
            result = writer.complete()
            assert result is not None
            before = time.process_time()
            base = reader.load_base()
            properties = CommitProperties(round_id=round_id, epoch=1, job="bench", offsets={bucket: number * 10 + 10})
            ready = committer.prepare([result], {}, base, properties)
            ready = replace(ready, expire=tuple(s.snapshot_id for s in ready.expirable))
            committer.commit(
                ready,
                Precondition(table_id=table.table_id, token=base.token, starts={bucket: base.offsets.get(bucket)}),
            )
            commits.append(time.process_time() - before)
            clock.advance(10)
            gone += ready.expirable
            before = time.process_time()
            if number % 6 == 5:  # upkeep's default is once a minute
                upkeep.delete_expired(gone)
                gone = []
            expiry.append(time.process_time() - before)
        assert rounds < 200 or len(lake.connection.load(table.path).metadata.snapshots) <= 182
    return commits, expiry


def _stock_commits(rounds: int) -> list[float]:
    folder = Path(tempfile.mkdtemp(prefix="lakeward-bench-"))
    catalog = SqlCatalog("stock", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    catalog.create_namespace("bench")
    rows = pa.table(Columns().make(np.arange(10)), names=list(COLUMNS))
    table = catalog.create_table("bench.t", rows.schema)
    spent = []
    for _ in range(rounds):
        (file,) = _dataframe_to_data_files(table.metadata, rows, PyArrowFileIO(table.io.properties))
        before = time.process_time()
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            append.append_data_file(file)
        spent.append(time.process_time() - before)
    catalog.close()
    shutil.rmtree(folder)
    return spent


def _around(costs: list[float], mark: int) -> float:
    """The median of ten commits around a mark; the first one alone is warmed by nothing and counts as the next few."""
    low = max(0, min(mark - 5, len(costs) - 10))
    low = 1 if mark == 1 and len(costs) > 10 else low
    part = sorted(costs[low : low + 10])
    return part[len(part) // 2]


# ---- scans -----------------------------------------------------------------------------------------------------------
def bench_scan(report: Report) -> None:
    with new_lake() as lake:
        table, maker, chance = (
            table_info("scan", pk=True, buckets=1),
            ChangelogMaker(10_000, 1),
            np.random.default_rng(6),
        )
        fresh, files = table_info("fresh", pk=True, buckets=1), table_info("files", pk=True, buckets=1)
        for made in (table, fresh, files):
            lake.catalog().create(made)
        run_round(lake, table, {0: maker.load(0)})
        for _ in range(10):
            run_round(lake, table, {0: _update_and_delete(maker, 0, 500, chance)})
        _copy(lake, table, fresh)
        _insert_only(lake, files)
        tables = (table, fresh, files)
        paths = [lake.connection.load(t.path).metadata_location for t in tables]
        ours = [_median(lambda t=t: _scan(lake, t)) for t in tables]  # type: ignore[misc]
        with duckdb_connection() as connection:
            query = "SELECT count(*), sum(quantity), count(comment), sum(price) FROM iceberg_scan('{}')"
            duck = [_median(lambda p=p: connection.sql(query.format(p)).fetchall()) for p in paths]  # type: ignore[misc]
    for who, (after, before, as_many) in (("our reader", ours), ("DuckDB", duck)):
        report.add(
            f"the same scan, {who}: what the deletes cost",
            figure=after * 1000,
            unit="ms CPU",
            beside=as_many * 1000,
            beside_what="as many files of as many rows, without deletes",
        )
        report.add(
            f"scan after 10 rounds of 500 updates + 500 deletes on 10 k rows, {who}",
            figure=after * 1000,
            unit="ms CPU",
            beside=before * 1000,
            beside_what="the same table freshly written",
            target="<= 2",
            of="ratio",
            cost=Cost(cpu_s=after),
            note=f"11 data files beside one: the same files without a single delete already take "
            f"{as_many / before:.1f} times as long, "
            "as each costs half a millisecond to open and decode. Compaction, which merges them, is not built yet.",
        )


def _insert_only(lake: IcebergLakeStorage, table: TableInfo) -> None:
    """As many data files, as large, in which every row lives."""
    maker = ChangelogMaker(10_000, 1)
    run_round(lake, table, {0: maker.load(0)})
    for number in range(10):
        offsets = 10_000 + 500 * number + np.arange(500)
        kinds = np.full(500, int(ChangeType.INSERT), np.int8)
        run_round(lake, table, {0: maker._batch(0, offsets, offsets, kinds, None)})


def _median(action: Callable[[], object]) -> float:
    action()
    return sorted(_cpu(action) for _ in range(15))[7]


def _update_and_delete(maker: ChangelogMaker, bucket: int, count: int, chance: np.random.Generator) -> pa.RecordBatch:
    """Updates of some keys and deletes of others that are still there."""
    alive = np.flatnonzero(maker.last[bucket] >= 0)
    keys = chance.choice(alive, 2 * count, replace=False)
    updated, deleted = keys[:count], keys[count:]
    start = maker.ends[bucket]
    ups = start + np.arange(2 * count)
    downs = start + 2 * count + np.arange(count)
    offsets = np.concatenate([ups, downs])
    previous = np.concatenate([np.repeat(maker.last[bucket][updated], 2), maker.last[bucket][deleted]])
    kinds = np.concatenate([np.tile(np.array([2, 3], np.int8), count), np.full(count, 4, np.int8)])
    maker.last[bucket][updated], maker.last[bucket][deleted] = ups[1::2], -1
    maker.ends[bucket] += 3 * count
    return maker._batch(bucket, np.concatenate([np.repeat(updated, 2), deleted]), offsets, kinds, previous)


def _copy(lake: IcebergLakeStorage, source: TableInfo, target: TableInfo) -> None:
    """The live rows in one round: what a fresh table of the same content looks like."""
    reader, committer, round_id = lake.open_reader(source), lake.open_committer(target), new_round_id()
    handle, head = committer.begin(round_id), reader.load_base().head
    assert head is not None
    results, stops = [], {}
    for number in range(target.descriptor.bucket_count):
        bucket = Bucket("", number)
        rows = pa.Table.from_batches(
            reader.scan(head, columns=[*COLUMNS, OFFSET, TIMESTAMP], buckets=[bucket])
        ).sort_by(OFFSET)
        stop = rows.column(OFFSET)[-1].as_py() + 1
        writer = lake.open_writer(task(target, handle, 0, stop, number))
        for batch in rows.to_batches():
            writer.write(batch)
        made = writer.complete()
        assert made is not None
        results.append(made)
        stops[bucket] = stop
    base = lake.open_reader(target).load_base()
    properties = CommitProperties(round_id=round_id, epoch=1, job="bench", offsets=stops)
    committer.commit(
        committer.prepare(results, {}, base, properties),
        Precondition(table_id=target.table_id, token=None, starts=dict.fromkeys(stops)),
    )


def _scan(lake: IcebergLakeStorage, table: TableInfo) -> int:
    reader = lake.open_reader(table)
    head = reader.load_base().head
    assert head is not None
    return sum(b.num_rows for b in reader.scan(head))


# ---- memory ----------------------------------------------------------------------------------------------------------
def bench_memory(report: Report, scale: float) -> None:
    """Each writer in a process of its own: a process's peak never comes down again."""
    peaks = {}
    for rows in (int(5_000_000 * scale), int(20_000_000 * scale)):
        command = [sys.executable, "-m", "bench.iceberg", "write-alone", str(rows)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent.parent, env=dict(os.environ)
        )
        peaks[rows] = float(done.stdout.split()[-1])
    small, large = peaks.values()
    report.add(
        f"peak memory of a writer over {max(peaks):,} rows",
        figure=large,
        unit="MB",
        beside=small,
        beside_what=f"over {min(peaks):,} rows",
        target="<= 1.2",
        of="ratio",
        cost=Cost(peak_rss_mb=large),
    )


def write_alone(rows: int) -> None:
    with new_lake() as lake:
        table = table_info("memory", pk=True)
        lake.catalog().create(table)
        writer = lake.open_writer(task(table, lake.open_committer(table).begin(new_round_id()), 0, rows))
        for batch in batches(rows):
            writer.write(batch)
        assert writer.complete() is not None
    # VmHWM, not ru_maxrss: the latter is inherited from the parent across exec.
    lines = Path("/proc/self/status").read_text().splitlines()
    print(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024)


CASES: dict[str, Callable[[Report, float], None]] = {
    "writer": lambda report, scale: bench_writer(report, int(5_000_000 * scale)),
    "upserts": bench_upserts,
    "commits": lambda report, scale: bench_commits(report, max(20, int(1_000 * scale))),
    "scan": lambda report, scale: bench_scan(report),
    "memory": bench_memory,
}


def main(*arguments: str) -> None:
    scales = [float(a) for a in arguments if a not in CASES]
    chosen = [a for a in arguments if a in CASES] or list(CASES)
    scale = scales[0] if scales else 1.0
    report = (
        Report("iceberg")
        if scale == 1.0
        else Report("iceberg", folder=Path(__file__).parent.parent / "build" / "bench")
    )
    for name in chosen:
        CASES[name](report, scale)
    made = {r.case for r in report.results}
    report.finish(keep=lambda case: len(chosen) < len(CASES) and case not in made)


if __name__ == "__main__":
    if sys.argv[1:2] == ["write-alone"]:
        write_alone(int(sys.argv[2]))
    else:
        main(*sys.argv[1:])
