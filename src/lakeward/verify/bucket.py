# SPDX-License-Identifier: Apache-2.0
"""Checks one bucket: lake rows against what must be there, and in depth against the hot store. Runs anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.changelog import Fold
from lakeward.model.bucket import Bucket
from lakeward.model.change import ChangeType
from lakeward.model.ids import SnapshotId
from lakeward.model.offsets import OffsetRange
from lakeward.model.offsetset import Offsets, OffsetSet
from lakeward.model.schema import CHANGE_TYPE, OFFSET, PREV_OFFSET
from lakeward.model.table import TableInfo
from lakeward.spi.hot import HotStore, KvSnapshot, LogBounds
from lakeward.spi.lake import LakeFile, LakeReader
from lakeward.verify.addresses import AddressCount, expected_live
from lakeward.verify.certificate import SHOWN, BucketReport, Finding, FindingKind
from lakeward.verify.rows import altered_offsets

WINDOW_ROWS = 500_000
"""Offsets compared at a time in depth: bounds memory at two windows of rows."""


@dataclass(frozen=True, kw_only=True)
class BucketTask:
    """`expected`: ranges a log table's bucket must hold; unused for PK tables. `bounds` None: the hot side has no such bucket."""

    table: TableInfo
    bucket: Bucket
    snapshot_id: SnapshotId
    committed: int
    expected: tuple[OffsetRange, ...]
    bounds: LogBounds | None
    deep: bool


def check_bucket(task: BucketTask, hot: HotStore, lake: LakeReader) -> BucketReport:
    """Never blocks rounds: reads one lake snapshot, a log range, and a KV snapshot under a lease of its own."""
    count = AddressCount(task.committed)
    for batch in lake.scan(task.snapshot_id, columns=[OFFSET], buckets=[task.bucket]):
        count.see(batch.column(OFFSET).to_numpy(zero_copy_only=False))
    part = _check_pk(task, hot, lake, count) if task.table.is_pk else _check_log(task, hot, lake, count)
    files = lake.files(task.snapshot_id, task.bucket)
    return BucketReport(
        bucket=task.bucket,
        range=OffsetRange(0, task.committed),
        rows=count.rows,
        compared=part.compared,
        findings=tuple(_with_files(f, files) for f in part.findings),
        beyond=part.beyond,
    )


@dataclass(frozen=True, kw_only=True)
class _Part:
    findings: tuple[Finding, ...]
    compared: int = 0
    beyond: tuple[str, ...] = ()


def _check_log(task: BucketTask, hot: HotStore, lake: LakeReader, count: AddressCount) -> _Part:
    findings = tuple(count.check_ranges(task.bucket, task.expected))
    if not task.deep:
        return _Part(findings=findings)
    start = task.bounds.start if task.bounds is not None else task.committed
    beyond = (f"bucket {task.bucket}: values of offsets below {start} (the log no longer holds them)",) if start > 0 else ()
    altered: list[Offsets] = []
    compared = 0
    for at in range(start, task.committed, WINDOW_ROWS):
        window = OffsetRange(at, min(at + WINDOW_ROWS, task.committed))
        different, rows = altered_offsets(_hot_rows(task, hot, window), _lake_rows(task, lake, window), list(task.table.schema.names))
        compared += rows
        altered.append(different)
    return _Part(findings=(*findings, *_altered(task.bucket, altered)), compared=compared, beyond=beyond)


def _check_pk(task: BucketTask, hot: HotStore, lake: LakeReader, count: AddressCount) -> _Part:
    """From a KV snapshot taken now and the changelog between the committed offset and it."""
    holder = f"verify-{task.snapshot_id}-{task.bucket}"
    try:
        snapshot = hot.take_snapshot(task.table, task.bucket, holder)
        if snapshot is None or not snapshot.has_offsets or snapshot.log_offset < task.committed:
            why = "the hot store has no KV snapshot with offsets at or above the committed offset"
            return _Part(findings=(), beyond=(f"bucket {task.bucket}: live rows ({why})",))
        return _check_live(task, hot, lake, count, snapshot)
    finally:
        hot.release_snapshots(task.table, holder)


def _check_live(task: BucketTask, hot: HotStore, lake: LakeReader, count: AddressCount, snapshot: KvSnapshot) -> _Part:
    names = list(task.table.schema.names) if task.deep else []
    kept = list(hot.read_snapshot(task.table, snapshot, names))
    offsets = [b.column(OFFSET).to_numpy(zero_copy_only=False) for b in kept]
    fold = Fold(task.committed, snapshot.log_offset)
    images: list[pa.RecordBatch] = []
    for batch in hot.read_log(task.table, task.bucket, task.committed, snapshot.log_offset, names):
        fold.see(batch)
        images += _before_images(batch) if task.deep else []
    fold.seal()
    live = expected_live(np.concatenate(offsets) if offsets else np.zeros(0, np.int64), fold.replaced, task.committed)
    findings = tuple(count.check_set(task.bucket, live))
    if not task.deep:
        return _Part(findings=findings)
    rows = _table([*(b.select([*names, OFFSET]) for b in kept), *images])
    return _compare_live(task, lake, live, rows, findings)


def _compare_live(task: BucketTask, lake: LakeReader, live: OffsetSet, rows: pa.Table | None, findings: tuple[Finding, ...]) -> _Part:
    if rows is None:
        return _Part(findings=findings)
    held = rows.filter(pa.array(live.mask(rows.column(OFFSET).to_numpy())))
    names = list(task.table.schema.names)
    altered: list[Offsets] = []
    compared = 0
    for batch in lake.scan(task.snapshot_id, columns=[*names, OFFSET], buckets=[task.bucket]):
        different, seen = altered_offsets(held, pa.Table.from_batches([batch]), names)
        altered.append(different)
        compared += seen
    lost = len(live) - held.num_rows
    beyond = (f"bucket {task.bucket}: values of {lost} rows replaced since (no before-images in the changelog)",) if lost > 0 else ()
    return _Part(findings=(*findings, *_altered(task.bucket, altered)), compared=compared, beyond=beyond)


def _before_images(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Rows replaced in this batch as they were, under the offset that wrote them: the -U and -D records."""
    changes = batch.column(CHANGE_TYPE).to_numpy(zero_copy_only=False)
    before = np.isin(changes, (ChangeType.UPDATE_BEFORE, ChangeType.DELETE))
    if not before.any():
        return []
    chosen = batch.filter(pa.array(before))
    chosen = chosen.filter(pc.is_valid(chosen.column(PREV_OFFSET)))
    names = [n for n in chosen.schema.names if not n.startswith("__")]
    columns = [*(chosen.column(n) for n in names), chosen.column(PREV_OFFSET)]
    return [pa.RecordBatch.from_arrays(columns, names=[*names, OFFSET])]


def _hot_rows(task: BucketTask, hot: HotStore, window: OffsetRange) -> pa.Table:
    names = [*task.table.schema.names, OFFSET]
    batches = [b.select(names) for b in hot.read_log(task.table, task.bucket, window.start, window.stop)]
    return _table(batches) or pa.table({OFFSET: pa.array([], pa.int64())})


def _lake_rows(task: BucketTask, lake: LakeReader, window: OffsetRange) -> pa.Table:
    inside = (pc.field(OFFSET) >= window.start) & (pc.field(OFFSET) < window.stop)
    names = [*task.table.schema.names, OFFSET]
    scanned: Iterator[pa.RecordBatch] = lake.scan(task.snapshot_id, columns=names, filter=inside, buckets=[task.bucket])
    table = _table(list(scanned))
    return pa.table({OFFSET: pa.array([], pa.int64())}) if table is None else table.filter(inside)


def _table(batches: Sequence[pa.RecordBatch]) -> pa.Table | None:
    if not batches:
        return None
    names = batches[0].schema.names
    return pa.concat_tables([pa.Table.from_batches([b.select(names)]) for b in batches], promote_options="permissive")


def _altered(bucket: Bucket, parts: list[Offsets]) -> list[Finding]:
    at = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    if not len(at):
        return []
    shown = tuple(int(o) for o in at[:SHOWN])
    words = f"{len(at)} rows differ from the hot store"
    return [Finding(kind=FindingKind.ALTERED, bucket=bucket, count=len(at), offsets=shown, words=words)]


def _with_files(finding: Finding, files: Sequence[LakeFile]) -> Finding:
    """Names the files whose bounds hold the finding's offsets."""
    holding = [f.path for f in files if f.offsets is not None and any(f.offsets.start <= o < f.offsets.stop for o in finding.offsets)]
    return Finding(
        kind=finding.kind,
        words=finding.words,
        bucket=finding.bucket,
        count=finding.count,
        offsets=finding.offsets,
        files=tuple(holding[:SHOWN]),
    )
