# SPDX-License-Identifier: Apache-2.0
"""The Paimon lake: log rounds beside Iceberg and pypaimon alone, PK rounds, commits over a long history, union reads,
and rounds on a Fluss cluster beside Fluss's own Flink job.

    LAKEWARD_BENCH_SCALE=0.01 python -m bench.paimon [log] [pk] [commits] [life] [union] [fluss]

runs a hundredth of the sizes, all parts unless some are named.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pypaimon.schema.data_types import PyarrowFieldParser

from bench.fluss import Bench, flink_job, our_job
from bench.iceberg import BATCH_ROWS, BUCKETS, ChangelogMaker, _around, batches, new_lake, table_info, task
from bench.report import Cost, Report
from lakeward.lake.paimon.plugin import load
from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward.model import OFFSET, PREV_OFFSET, Bucket, TableInfo, new_round_id
from lakeward.spi import (
    CommitProperties,
    LakeFile,
    LakeStorage,
    Precondition,
    RewriteGroup,
    RewriteTask,
    SupportsChanges,
    SupportsRewrite,
    SupportsRewriteCommit,
)
from lakeward.tiering.compact.plan import plan_compaction
from lakeward.tiering.work.options import CompactionPolicy
from tests.fluss.paimonworld import PaimonWorld
from tests.kit.fluss.cluster import FlussCluster
from tests.spark.processes import Job, Server, tier_now

SCALE = float(os.environ.get("LAKEWARD_BENCH_SCALE", "1"))
LOG_ROWS, KEYS, CHANGED = int(10_000_000 * SCALE), int(1_000_000 * SCALE), int(200_000 * SCALE)
TAIL, COMMITS = int(50_000 * SCALE), max(40, int(1_000 * SCALE))
LIFE_KEYS = max(4_000, int(200_000 * SCALE))
LOADED_ROWS = 500_000
"""Rows that are held to be written again and again: making data is not measured."""

REPEATS = 5


@contextmanager
def paimon_lake() -> Iterator[PaimonLakeStorage]:
    folder = Path(tempfile.mkdtemp(prefix="lakeward-bench-"))
    try:
        lake = load({"warehouse": str(folder)})
        assert isinstance(lake, PaimonLakeStorage)
        yield lake
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def cpu_s(action: Callable[[], object]) -> float:
    """Of all threads of this process: native writers have their own."""
    before = time.process_time()
    action()
    return time.process_time() - before


def commit(lake: LakeStorage, table: TableInfo, results: Sequence[bytes], stops: dict[Bucket, int]) -> None:
    base, committer = lake.open_reader(table).load_base(), lake.open_committer(table)
    properties = CommitProperties(round_id=new_round_id(), epoch=1, job="bench", offsets=stops)
    ready = committer.prepare(results, {}, base, properties)
    starts = {b: base.offsets.get(b) for b in stops}
    committer.commit(ready, Precondition(table_id=table.table_id, token=base.token, starts=starts))


# ---- log tables ------------------------------------------------------------------------------------------------------
def log_round(lake: LakeStorage, table: TableInfo, source: Sequence[pa.RecordBatch], rows: int) -> None:
    """Written and committed, as a job with one task does it."""
    writer = lake.open_writer(task(table, lake.open_committer(table).begin(new_round_id()), 0, rows))
    for batch in source:
        writer.write(batch)
    result = writer.complete()
    assert result is not None
    commit(lake, table, [result], {Bucket("", 0): rows})


def pypaimon_alone(lake: PaimonLakeStorage, table: TableInfo, source: Sequence[pa.RecordBatch]) -> None:
    """Its own writer and commit, rows of the lake's schema from memory."""
    lake_table = lake.connection.load(table.path).copy({"write.native.enabled": "true"})
    builder = lake_table.new_batch_write_builder()
    writer, committer = builder.new_write(), builder.new_commit()
    for batch in source:
        writer.write_arrow_batch(batch)
    committer.commit(writer.prepare_commit())
    writer.close()
    committer.close()


def fitted(lake: PaimonLakeStorage, table: TableInfo, source: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    schema = PyarrowFieldParser.from_paimon_schema(lake.connection.load(table.path).table_schema.fields)
    number = {"__bucket": pa.array(np.zeros(BATCH_ROWS, np.int32))}
    return [
        pa.RecordBatch.from_arrays(
            [
                number[f.name].slice(0, b.num_rows) if f.name in number else b.column(f.name).cast(f.type)
                for f in schema
            ],
            schema=schema,
        )
        for b in source
    ]


def spent_on(run: Callable[[Sequence[pa.RecordBatch]], object]) -> float:
    """CPU seconds of all rows, in rounds of `LOADED_ROWS`."""
    spent, left = 0.0, LOG_ROWS
    while left > 0:
        part = list(batches(min(LOADED_ROWS, left)))
        spent += cpu_s(partial(run, part))
        left -= LOADED_ROWS
    return spent


def bench_log(report: Report) -> None:
    def ours(lake: LakeStorage, name: str) -> float:
        def round_of(part: Sequence[pa.RecordBatch]) -> None:
            table = table_info(f"{name}{time.monotonic_ns()}", pk=False)
            lake.catalog().create(table)
            log_round(lake, table, part, sum(b.num_rows for b in part))

        return spent_on(round_of)

    with new_lake() as iceberg:
        beside = ours(iceberg, "log")
    with paimon_lake() as lake:
        mine = ours(lake, "log")
        table = table_info("alone", pk=False)
        lake.catalog().create(table)
        alone, left = 0.0, LOG_ROWS
        while left > 0:
            part = fitted(lake, table, list(batches(min(LOADED_ROWS, left))))
            alone += cpu_s(partial(pypaimon_alone, lake, table, part))
            left -= LOADED_ROWS
    for what, other, target in (
        ("our Iceberg round", beside, ">= 0.8"),
        ("pypaimon alone, from memory", alone, ">= 0.7"),
    ):
        report.add(
            f"log table, {LOG_ROWS:,} rows, beside {what}",
            figure=LOG_ROWS / mine,
            unit="rows per CPU s",
            beside=LOG_ROWS / other,
            beside_what=what,
            target=target,
            of="ratio",
            cost=Cost(cpu_s=mine),
        )


# ---- PK tables -------------------------------------------------------------------------------------------------------
def pk_round(lake: LakeStorage, table: TableInfo, changes: dict[int, pa.RecordBatch]) -> None:
    handle, results, stops = lake.open_committer(table).begin(new_round_id()), list[bytes](), dict[Bucket, int]()
    for number, batch in changes.items():
        stops[Bucket("", number)] = stop = batch.column(OFFSET)[-1].as_py() + 1
        writer = lake.open_writer(task(table, handle, 0, stop, number))
        assert isinstance(writer, SupportsChanges)
        for at in range(0, batch.num_rows, BATCH_ROWS):
            writer.write_changes(batch.slice(at, BATCH_ROWS))
        result = writer.complete()
        results += [result] if result is not None else []
    commit(lake, table, results, stops)


def bench_pk(report: Report) -> None:
    note = "alone; the part `fluss` has it beside Fluss's Flink job"
    with paimon_lake() as lake:
        table, maker, chance = table_info("pk", pk=True), ChangelogMaker(KEYS), np.random.default_rng(5)
        lake.catalog().create(table)
        made = {b: maker.load(b).drop_columns([PREV_OFFSET]) for b in range(BUCKETS)}
        first = cpu_s(partial(pk_round, lake, table, made))
        report.add(f"PK table, first round of {KEYS:,} keys", figure=first, unit="CPU s", note=note)
        made = {b: maker.change(b, CHANGED // BUCKETS, chance).drop_columns([PREV_OFFSET]) for b in range(BUCKETS)}
        later = cpu_s(partial(pk_round, lake, table, made))
        report.add(f"PK table, {CHANGED:,} updates", figure=later, unit="CPU s", note=note)


# ---- commits ---------------------------------------------------------------------------------------------------------
def bench_commits(report: Report) -> None:
    spent, source = list[float](), next(batches(10))
    with paimon_lake() as lake:
        table = table_info("commits", pk=False)
        lake.catalog().create(table)
        at = source.schema.names.index(OFFSET)
        for number in range(COMMITS):
            moved = source.set_column(at, OFFSET, pa.array(np.arange(10) + number * 10))
            handle = lake.open_committer(table).begin(new_round_id())
            writer = lake.open_writer(task(table, handle, number * 10, number * 10 + 10))
            writer.write(moved)
            result = writer.complete()
            assert result is not None
            spent.append(cpu_s(partial(commit, lake, table, [result], {Bucket("", 0): number * 10 + 10})))
    mean = statistics.mean(spent[-64:]) * 1_000
    report.add(
        f"commit at snapshot {COMMITS:,}, no snapshot expired",
        figure=_around(spent, COMMITS) * 1_000,
        unit="ms CPU",
        beside=_around(spent, 1) * 1_000,
        beside_what="the first ones",
        target="<= 2",
        of="ratio",
        note=f"median of ten; the mean of the last 64, with merges of manifests, is {mean:.1f} ms",
    )


# ---- a long life -----------------------------------------------------------------------------------------------------
def compact(lake: LakeStorage, table: TableInfo) -> None:
    """What the planner asks for, as a job does it."""
    reader, committer, rewrite_id = lake.open_reader(table), lake.open_committer(table), new_round_id()
    assert isinstance(lake, SupportsRewrite)
    assert isinstance(committer, SupportsRewriteCommit)
    base = reader.load_base()
    head = reader.load_snapshot(base.head)
    assert head is not None
    plan = plan_compaction(reader.files(head.snapshot_id), CompactionPolicy())
    results, handle = [], committer.begin(rewrite_id)
    for index, planned in enumerate(plan.groups):
        files = tuple(f.file for f in planned.files)
        group = RewriteGroup(bucket=planned.bucket, files=files, sequence=head.sequence, index=index)
        made = lake.rewrite(RewriteTask(round_id=rewrite_id, table=table, group=group, attempt=0, handle=handle))
        results += [made] if made is not None else []
    ready = committer.prepare_rewrite(results, base, rewrite_id).committable if results else None
    if ready is not None:
        committer.commit(ready, Precondition(table_id=table.table_id, token=base.token, fence=base.fence))


def scan(lake: LakeStorage, table: TableInfo) -> None:
    reader = lake.open_reader(table)
    head = reader.load_snapshot()
    assert head is not None
    assert sum(b.num_rows for b in reader.scan(head.snapshot_id)) == LIFE_KEYS


def best_in_turn(*calls: Callable[[], object]) -> list[tuple[float, float]]:
    """(seconds, CPU seconds) of each, the best of many: they take turns, so that what else runs hits all alike."""
    took: list[list[tuple[float, float]]] = [[] for _ in calls]
    for _ in range(4 * REPEATS):
        for call, times in zip(calls, took, strict=True):
            began = time.perf_counter()
            spent = cpu_s(call)
            times.append((time.perf_counter() - began, spent))
    return [(min(s for s, _ in times), min(c for _, c in times)) for times in took]


def head_files(lake: LakeStorage, table: TableInfo) -> Sequence[LakeFile]:
    reader = lake.open_reader(table)
    head = reader.load_snapshot()
    assert head is not None
    return reader.files(head.snapshot_id)


def bench_life(report: Report) -> None:
    with paimon_lake() as lake:
        fresh, aged = table_info("fresh", pk=True), table_info("aged", pk=True)
        makers, chance = (ChangelogMaker(LIFE_KEYS), ChangelogMaker(LIFE_KEYS)), np.random.default_rng(7)
        for table, maker in zip((fresh, aged), makers, strict=True):
            lake.catalog().create(table)
            pk_round(lake, table, {b: maker.load(b).drop_columns([PREV_OFFSET]) for b in range(BUCKETS)})
        spent = 0.0
        for number in range(COMMITS):
            changes = {b: makers[1].change(b, 100, chance).drop_columns([PREV_OFFSET]) for b in range(BUCKETS)}
            pk_round(lake, aged, changes)
            if number % 4 == 3:
                spent += cpu_s(partial(compact, lake, aged))
        left = len(head_files(lake, aged))
        (old, old_cpu), (new, new_cpu) = best_in_turn(partial(scan, lake, aged), partial(scan, lake, fresh))
        report.add(
            f"scan of a PK table of {LIFE_KEYS:,} rows after {COMMITS:,} rounds with compaction",
            figure=old,
            unit="s",
            beside=new,
            beside_what="written in one round",
            target="<= 1.5",
            of="ratio",
            note=f"{left} files in {BUCKETS} buckets; {old_cpu:.3f} beside {new_cpu:.3f} CPU s, best of {4 * REPEATS}; "
            f"compactions took {spent:.1f} CPU s",
        )


# ---- union reads -----------------------------------------------------------------------------------------------------
def rows_of(start: int, count: int) -> pa.Table:
    ids = np.arange(start, start + count)
    return pa.table({"id": ids, "v": ids * 0.5, "s": pa.array([f"text {i % 1000}" for i in ids.tolist()])})


def median_s(call: Callable[[], Any]) -> float:
    call()
    took = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def bench_union(report: Report) -> None:
    folder = Path(tempfile.mkdtemp(prefix="lakeward-bench-"))
    server = Server(folder, {"datalake.format": "paimon"})
    job = Job(server, "bench", spark=False)
    client = server.connect()
    try:
        columns = "id BIGINT NOT NULL, v DOUBLE, s STRING"
        table = client.create_table("bench.pk", columns, primary_key="id", buckets=4, freshness="1 h")
        for at in range(0, KEYS, 100_000):
            table.upsert(rows_of(at, min(100_000, KEYS - at)))
        tier_now(client, table, 300)
        table.upsert(rows_of(KEYS // 2, TAIL))
        lake = load({"warehouse": str(folder / "data" / "warehouse")})
        assert isinstance(lake, PaimonLakeStorage)

        def alone() -> pa.Table:
            native = lake.connection.load(table.info.path).copy({"read.native.enabled": "true"})
            builder = native.new_read_builder().with_projection(["id", "v", "s"])
            return builder.new_read().to_arrow(builder.new_scan().plan().splits())

        assert alone().num_rows == client.read(table.path).to_table().num_rows == KEYS
        beside, union = median_s(alone), median_s(lambda: client.read(table.path).to_table())
        report.add(
            f"union read, PK, {KEYS:,} rows and a tail of {TAIL:,}",
            figure=union,
            unit="s",
            beside=beside,
            beside_what="native Paimon read of the lake alone",
            target=f"<= {1.5 * beside + 0.3:.3f}",
        )
    finally:
        job.kill()
        client.close()
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


# ---- on a Fluss cluster ----------------------------------------------------------------------------------------------
def bench_fluss(report: Report) -> None:
    """Our job and Fluss's own, one after the other, each on tables of its own with the same rows."""
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as name:
        folder = Path(name)
        settings = {"kv.snapshot.interval": "5s"}
        cluster = FlussCluster(home=folder / "cluster", settings=settings, lake="paimon")
        try:
            world = PaimonWorld(cluster.start())
            bench = Bench(world, SCALE)
            for start in (our_job, flink_job):
                with start(cluster, folder) as job:
                    bench.run(job)
                    bench.drop_tables()
            world.close()
        finally:
            cluster.stop()
    for kind, what in (("pk", f"PK table on Fluss, first round of {KEYS:,} keys"), ("updates", f"{CHANGED:,} updates")):
        ours, theirs = bench.costs[kind, "ours"], bench.costs[kind, "flink"]
        report.add(
            what,
            figure=ours.cpu_s,
            unit="CPU s",
            beside=theirs.cpu_s,
            beside_what="Fluss's Flink job",
            target="<= 0.3",
            of="ratio",
            cost=ours,
        )


PARTS = {
    "log": bench_log,
    "pk": bench_pk,
    "commits": bench_commits,
    "life": bench_life,
    "union": bench_union,
    "fluss": bench_fluss,
}


def main() -> None:
    report = Report("paimon")
    for name in sys.argv[1:] or PARTS:
        PARTS[name](report)
    made = {r.case for r in report.results}
    report.finish(keep=lambda case: len(sys.argv) > 1 and case not in made)


if __name__ == "__main__":
    main()
