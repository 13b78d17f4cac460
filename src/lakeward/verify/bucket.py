# SPDX-License-Identifier: Apache-2.0
"""Checks one bucket: lake rows against what must be there, and in depth against the hot store. Runs anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lakeward.changelog.columns import offsets_of, with_change_name
from lakeward.changelog.rowdiff import altered_offsets
from lakeward.errors import BucketStopped, LakeError, NotFound, SnapshotGone
from lakeward.model import OFFSET, Content, OffsetRange, Offsets, OffsetSet
from lakeward.spi import HotStore, LakeFile, LakeReader
from lakeward.verify.addresses import AddressCount
from lakeward.verify.certificate import SHOWN, BucketReport, Finding, FindingKind
from lakeward.verify.keyed import check_keyed
from lakeward.verify.lakerows import count_rows, gather_rows
from lakeward.verify.spill import WindowSpill
from lakeward.verify.task import BucketTask, Part, altered, as_table

HOT_GONE = (NotFound, BucketStopped)
"""The hot side no longer has it: retention went on, the partition was dropped, the bucket waits for a repair."""


def check_bucket(task: BucketTask, hot: HotStore, lake: LakeReader) -> BucketReport:
    """Never blocks rounds: reads one lake snapshot, a log range, and a KV snapshot under a lease of its own.

    Raises `SnapshotGone` when another engine expired the snapshot meanwhile, and what the hot store raises when it is
    away."""
    part = _or_unreadable(task, lambda: _check(task, hot, lake))
    files = _or_none(lambda: lake.files(task.snapshot_id, task.bucket)) if part.findings else ()
    return BucketReport(
        bucket=task.bucket,
        range=OffsetRange(0, task.committed),
        rows=part.rows,
        compared=part.compared,
        findings=tuple(_with_files(f, files) for f in part.findings),
        beyond=part.beyond,
    )


def _check(task: BucketTask, hot: HotStore, lake: LakeReader) -> Part:
    check = _check_foreign if not task.committed else check_keyed if task.lake_table.is_pk else _check_log
    try:
        return check(task, hot, lake)
    except SnapshotGone:
        raise
    except HOT_GONE as error:
        count = count_rows(task, lake, AddressCount(task.committed, task.floor))
        findings = () if task.table.is_pk else tuple(count.check_ranges(task.bucket, task.expected))
        what = "live rows" if task.lake_table.is_pk else "values"
        return Part(findings=findings, rows=count.rows, beyond=(task.not_checked(what, str(error)),))


def _check_foreign(task: BucketTask, hot: HotStore, lake: LakeReader) -> Part:
    """No round was here: whatever lies there came from another engine."""
    count = count_rows(task, lake, AddressCount(0))
    return Part(findings=tuple(count.check_ranges(task.bucket, ())), rows=count.rows)


def _check_log(task: BucketTask, hot: HotStore, lake: LakeReader) -> Part:
    count = AddressCount(task.committed, task.floor)
    if task.deep and task.bounds is not None:
        kept = OffsetRange(task.bounds.start, max(task.bounds.start, task.bounds.end))
        return _compare_log(task, kept, hot, lake, count)
    count_rows(task, lake, count)
    beyond = (task.not_checked("values", "the hot store has no such bucket any more"),) if task.deep else ()
    return Part(findings=tuple(_check_offsets(task, hot, count)), rows=count.rows, beyond=beyond)


def _check_offsets(task: BucketTask, hot: HotStore, count: AddressCount) -> list[Finding]:
    if not task.table.is_pk:
        return count.check_ranges(task.bucket, task.expected)
    kept_from = task.committed if task.bounds is None else min(task.bounds.start, task.committed)
    batches = hot.read_log(task.table, task.bucket, kept_from, task.committed, []) if kept_from < task.committed else ()
    logged = [offsets_of(batch) for batch in batches]
    offsets = OffsetSet(np.concatenate(logged)) if logged else OffsetSet()
    return count.check_logged(task.bucket, task.expected, kept_from, offsets)


def _compare_log(task: BucketTask, kept: OffsetRange, hot: HotStore, lake: LakeReader, count: AddressCount) -> Part:
    """Value by value what the log still keeps of the committed range: each side is read once, and compared window by
    window.
    """
    different: list[Offsets] = []
    compared, stop, names = 0, min(task.committed, kept.stop), list(task.lake_table.schema.names)
    first = max(kept.start, task.floor)
    whole = [(at, min(at + task.window_rows, stop)) for at in range(first, stop, task.window_rows)]
    windows = task.sampled(whole)
    with WindowSpill([start for start, _ in windows]) as lake_rows:
        gather_rows(task, lake, windows, count, lake_rows)
        for number, window in enumerate(windows):
            held = _or_empty(lake_rows.take(number))
            offsets, rows = altered_offsets(_hot_rows(task, hot, OffsetRange(*window)), held, names)
            compared += rows
            different.append(offsets)
    return Part(
        findings=(*_check_offsets(task, hot, count), *altered(task.bucket, different)),
        rows=count.rows,
        compared=compared,
        beyond=tuple(_beyond_log(task, kept)),
    )


def _beyond_log(task: BucketTask, kept: OffsetRange) -> Iterator[str]:
    if min(kept.start, task.committed) > task.floor:
        yield task.not_checked(
            f"values of offsets below {min(kept.start, task.committed)}", "the log no longer holds them"
        )
    if task.committed > kept.stop:
        yield task.not_checked(f"values of offsets from {kept.stop} on", "the log ends there")


def _hot_rows(task: BucketTask, hot: HotStore, window: OffsetRange) -> pa.Table:
    names, is_changelog = [*task.lake_table.schema.names, OFFSET], task.side.content is Content.CHANGELOG
    logged = hot.read_log(task.table, task.bucket, window.start, window.stop)
    batches = [(with_change_name(b) if is_changelog else b).select(names) for b in logged]
    return _or_empty(as_table(batches))


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
