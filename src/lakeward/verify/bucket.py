# SPDX-License-Identifier: Apache-2.0
"""Checks one bucket: lake rows against what must be there, and in depth against the hot store. Runs anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import BucketStopped, LakeError, NotFound, SnapshotGone
from lakeward.model.offsets import OffsetRange
from lakeward.model.offsetset import Offsets
from lakeward.model.schema import OFFSET
from lakeward.spi.hot import HotStore
from lakeward.spi.lake import LakeFile, LakeReader
from lakeward.verify.addresses import AddressCount
from lakeward.verify.certificate import SHOWN, BucketReport, Finding, FindingKind
from lakeward.verify.keyed import check_keyed
from lakeward.verify.rows import altered_offsets
from lakeward.verify.spill import WindowSpill
from lakeward.verify.task import BucketTask, Part, altered, as_table

HOT_GONE = (NotFound, BucketStopped)
"""The hot side no longer has it: retention went on, the partition was dropped, the bucket waits for a repair."""


def check_bucket(task: BucketTask, hot: HotStore, lake: LakeReader) -> BucketReport:
    """Never blocks rounds: reads one lake snapshot, a log range, and a KV snapshot under a lease of its own.

    Raises `SnapshotGone` when another engine expired the snapshot meanwhile, and what the hot store raises when it is
    away."""
    count = AddressCount(task.committed)
    part = _or_unreadable(task, lambda: _check(task, hot, lake, count))
    files = _or_none(lambda: lake.files(task.snapshot_id, task.bucket)) if part.findings else ()
    return BucketReport(
        bucket=task.bucket,
        range=OffsetRange(0, task.committed),
        rows=count.rows,
        compared=part.compared,
        findings=tuple(_with_files(f, files) for f in part.findings),
        beyond=part.beyond,
    )


def _check(task: BucketTask, hot: HotStore, lake: LakeReader, count: AddressCount) -> Part:
    for batch in lake.scan(task.snapshot_id, columns=[OFFSET], buckets=[task.bucket]):
        count.see(batch.column(OFFSET).to_numpy(zero_copy_only=False))
    check = _check_keyed if task.table.is_pk else _check_log
    return check(task, hot, lake, count)


def _check_keyed(task: BucketTask, hot: HotStore, lake: LakeReader, count: AddressCount) -> Part:
    try:
        return check_keyed(task, hot, lake, count)
    except SnapshotGone:
        raise
    except HOT_GONE as error:
        return Part(beyond=(task.not_checked("live rows", str(error)),))


def _check_log(task: BucketTask, hot: HotStore, lake: LakeReader, count: AddressCount) -> Part:
    found = Part(findings=tuple(count.check_ranges(task.bucket, task.expected)))
    if not task.deep:
        return found
    if task.bounds is None:
        return replace(found, beyond=(task.not_checked("values", "the hot store has no such bucket any more"),))
    try:
        return _compare_log(
            task, OffsetRange(task.bounds.start, max(task.bounds.start, task.bounds.end)), hot, lake, found
        )
    except SnapshotGone:
        raise
    except HOT_GONE as error:
        return replace(found, beyond=(task.not_checked("values", str(error)),))


def _compare_log(task: BucketTask, kept: OffsetRange, hot: HotStore, lake: LakeReader, found: Part) -> Part:
    """Value by value what the log still keeps of the committed range: each side is read once, and compared window by
    window.
    """
    different: list[Offsets] = []
    compared, stop = 0, min(task.committed, kept.stop)
    starts = range(kept.start, stop, task.window_rows)
    with WindowSpill(starts) as lake_rows:
        for batch in _lake_rows(task, lake, OffsetRange(kept.start, max(kept.start, stop))):
            lake_rows.add(batch)
        for number, at in enumerate(starts):
            window = OffsetRange(at, min(at + task.window_rows, stop))
            held = _or_empty(lake_rows.take(number))
            offsets, rows = altered_offsets(_hot_rows(task, hot, window), held, list(task.table.schema.names))
            compared += rows
            different.append(offsets)
    return Part(
        findings=(*found.findings, *altered(task.bucket, different)),
        compared=compared,
        beyond=tuple(_beyond_log(task, kept)),
    )


def _beyond_log(task: BucketTask, kept: OffsetRange) -> Iterator[str]:
    if min(kept.start, task.committed) > 0:
        yield task.not_checked(
            f"values of offsets below {min(kept.start, task.committed)}", "the log no longer holds them"
        )
    if task.committed > kept.stop:
        yield task.not_checked(f"values of offsets from {kept.stop} on", "the log ends there")


def _hot_rows(task: BucketTask, hot: HotStore, window: OffsetRange) -> pa.Table:
    names = [*task.table.schema.names, OFFSET]
    batches = [b.select(names) for b in hot.read_log(task.table, task.bucket, window.start, window.stop)]
    return _or_empty(as_table(batches))


def _lake_rows(task: BucketTask, lake: LakeReader, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The filter spares files and row groups; what comes beside it is for the caller to drop."""
    inside = (pc.field(OFFSET) >= wanted.start) & (pc.field(OFFSET) < wanted.stop)
    names = [*task.table.schema.names, OFFSET]
    return lake.scan(task.snapshot_id, columns=names, filter=inside, buckets=[task.bucket])


def _or_empty(table: pa.Table | None) -> pa.Table:
    return pa.table({OFFSET: pa.array([], pa.int64())}) if table is None else table


def _or_unreadable(task: BucketTask, check: Callable[[], Part]) -> Part:
    """A file that is gone or rotten is what this is for: a finding, not an exception."""
    try:
        return check()
    except LakeError as error:
        return Part(findings=(Finding(kind=FindingKind.UNREADABLE, bucket=task.bucket, words=str(error)),))


def _or_none(load: Callable[[], Sequence[LakeFile]]) -> Sequence[LakeFile]:
    try:
        return load()
    except LakeError:
        return ()


def _with_files(finding: Finding, files: Sequence[LakeFile]) -> Finding:
    """Names the files whose bounds hold the finding's offsets."""
    holding = [
        f.path
        for f in files
        if f.offsets is not None and any(f.offsets.start <= o < f.offsets.stop for o in finding.offsets)
    ]
    return replace(finding, files=tuple(holding[:SHOWN]))
