# SPDX-License-Identifier: Apache-2.0
"""Checks a PK table's bucket: its lake rows are those that were live at the committed offset, told from the
KV of now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.changelog import Fold
from lakeward.changelog.rowdiff import altered_offsets
from lakeward.model import CHANGE_TYPE, OFFSET, PREV_OFFSET, ChangeType, Offsets, OffsetSet
from lakeward.spi import HotStore, KvSnapshot, LakeReader
from lakeward.verify.addresses import AddressCount, expected_live
from lakeward.verify.bykey import check_by_key
from lakeward.verify.lakerows import count_rows, gather_rows
from lakeward.verify.spill import WindowSpill
from lakeward.verify.task import BucketTask, Part, Window, altered


def check_keyed(task: BucketTask, hot: HotStore, lake: LakeReader) -> Part:
    """From a KV snapshot taken now and the changelog between the committed offset and it. Raises what the hot store
    raises.
    """
    if not hot.names_replaced(task.table):
        return check_by_key(task, hot, lake)
    holder, count = f"verify-{uuid4()}", AddressCount(task.committed)
    try:
        snapshot = hot.take_snapshot(task.table, task.bucket, holder)
        if snapshot is None or not snapshot.has_offsets or snapshot.log_offset < task.committed:
            count_rows(task, lake, count)
            why = "the hot store has no KV snapshot with offsets at or above the committed offset"
            return Part(rows=count.rows, beyond=(task.not_checked("live rows", why),))
        kv = _few_rows(task, hot, snapshot)
        live = _live(task, hot, snapshot, kv)
        if task.deep:
            return _compare(task, lake, live, count, lambda chosen: _held(task, hot, snapshot, chosen, kv))
        count_rows(task, lake, count)
        return Part(findings=tuple(count.check_set(task.bucket, live)), rows=count.rows)
    finally:
        hot.release_snapshots(task.table, holder)


def _few_rows(task: BucketTask, hot: HotStore, snapshot: KvSnapshot) -> list[pa.RecordBatch] | None:
    """The KV with its values, where one window holds it: a small one takes longer to open than to read."""
    if not task.deep or snapshot.rows is None or snapshot.rows > task.window_rows:
        return None
    return list(hot.read_snapshot(task.table, snapshot, list(task.table.schema.names)))


def _live(
    task: BucketTask, hot: HotStore, snapshot: KvSnapshot, kv: Sequence[pa.RecordBatch] | None = None
) -> OffsetSet:
    """Eight bytes a row: columns are not read."""
    batches = hot.read_snapshot(task.table, snapshot, []) if kv is None else kv
    offsets = [b.column(OFFSET).to_numpy(zero_copy_only=False) for b in batches]
    fold = Fold(task.committed, snapshot.log_offset)
    for batch in hot.read_log(task.table, task.bucket, task.committed, snapshot.log_offset, []):
        fold.see(batch)
    fold.seal()
    return expected_live(np.concatenate(offsets) if offsets else np.zeros(0, np.int64), fold.replaced, task.committed)


def _compare(
    task: BucketTask,
    lake: LakeReader,
    live: OffsetSet,
    count: AddressCount,
    hot_rows: Callable[[OffsetSet], Iterator[pa.RecordBatch]],
) -> Part:
    """Value by value: KV, changelog and lake are read once each, and compared a window of live rows at a time."""
    different: list[Offsets] = []
    compared, lost = 0, 0
    names, values = list(task.table.schema.names), live.values
    firsts = range(0, len(values), task.window_rows)
    windows = task.sampled([(int(values[at]), int(values[at:][: task.window_rows][-1]) + 1) for at in firsts])
    starts = [start for start, _ in windows]
    chosen = live if task.sample >= 1 else _within(live, windows)
    with WindowSpill(starts) as held, WindowSpill(starts) as lake_spill:
        for batch in hot_rows(chosen):
            held.add(batch)
        gather_rows(task, lake, windows, count, lake_spill)
        for number, window in enumerate(windows):
            ours, theirs = held.take(number), lake_spill.take(number)
            low, high = np.searchsorted(values, window)
            lost += int(high - low) - (0 if ours is None else ours.num_rows)
            if ours is not None and theirs is not None:
                offsets, rows = altered_offsets(ours, theirs, names)
                different.append(offsets)
                compared += rows
    beyond = (
        (task.not_checked(f"values of {lost} rows replaced since", "no before-images in the changelog"),)
        if lost > 0
        else ()
    )
    findings = (*count.check_set(task.bucket, live), *altered(task.bucket, different))
    return Part(findings=findings, rows=count.rows, compared=compared, beyond=beyond)


def _within(live: OffsetSet, windows: Sequence[Window]) -> OffsetSet:
    bounds = np.searchsorted(live.values, np.array(windows, np.int64).reshape(-1, 2))
    return OffsetSet(np.concatenate([live.values[:0], *(live.values[low:high] for low, high in bounds)]))


def _held(
    task: BucketTask, hot: HotStore, snapshot: KvSnapshot, live: OffsetSet, kv: Sequence[pa.RecordBatch] | None
) -> Iterator[pa.RecordBatch]:
    """The live rows as the hot store has them: in the KV still, or as before-images of what replaced them since."""
    names = [*task.table.schema.names, OFFSET]
    for batch in hot.read_snapshot(task.table, snapshot, list(task.table.schema.names)) if kv is None else kv:
        yield from _chosen(batch.select(names), live)
    for batch in hot.read_log(task.table, task.bucket, task.committed, snapshot.log_offset):
        for image in _before_images(batch, names):
            yield from _chosen(image, live)


def _chosen(batch: pa.RecordBatch, live: OffsetSet) -> Iterator[pa.RecordBatch]:
    keep = live.mask(batch.column(OFFSET).to_numpy(zero_copy_only=False))
    if keep.any():
        yield batch.filter(pa.array(keep))


def _before_images(batch: pa.RecordBatch, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Rows replaced in this batch as they were, under the offset that wrote them: the -U and -D records."""
    changes = batch.column(CHANGE_TYPE).to_numpy(zero_copy_only=False)
    chosen = batch.filter(pa.array(np.isin(changes, (ChangeType.UPDATE_BEFORE, ChangeType.DELETE))))
    chosen = chosen.filter(pc.is_valid(chosen.column(PREV_OFFSET)))
    if chosen.num_rows:
        yield pa.RecordBatch.from_arrays(
            [*(chosen.column(n) for n in names[:-1]), chosen.column(PREV_OFFSET)], names=names
        )
