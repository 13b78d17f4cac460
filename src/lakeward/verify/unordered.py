# SPDX-License-Identifier: Apache-2.0
"""Compares a log table whose lake rows do not say their offsets: as a collection of rows, by their values.

Every row of the log must be in the lake as often as in the log. The lake has as many rows as were committed (the caller
counts them), so that it holds no other row either where the log still has them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakeward.errors import BucketStopped, NotFound
from lakeward.model import SnapshotId, cast_values, to_arrow_schema
from lakeward.spi import HotStore, LakeReader
from lakeward.verify.rowhash import Hashes, hash_rows
from lakeward.verify.task import BucketTask

ROWS_AT_ONCE = 32_000_000
"""Hashes of so many rows of each side are in memory: 256 MB each. More rows are read again for each further share."""


@dataclass(frozen=True)
class UnorderedRows:
    """`compared`: rows of the log. `missing`: those that the lake does not hold with these values."""

    compared: int
    missing: int


def compare_unordered(
    tasks: Sequence[BucketTask], hot: HotStore, lake: LakeReader, snapshot: SnapshotId, rows: int
) -> UnorderedRows:
    """`rows`: how many the lake has, by which the passes are planned."""
    compared = missing = 0
    shares = 1 + rows // ROWS_AT_ONCE
    for share in range(shares):
        logged = _share((batch for task in tasks for batch in _logged(task, hot)), tasks, share, shares)
        stored = _share(_stored(tasks, lake, snapshot), tasks, share, shares)
        compared += len(logged)
        missing += _count_missing(logged, stored)
    return UnorderedRows(compared, missing)


def _logged(task: BucketTask, hot: HotStore) -> Iterator[pa.RecordBatch]:
    if task.bounds is None:
        return
    for expected in task.expected:
        start, stop = max(expected.start, task.bounds.start), min(expected.stop, task.bounds.end)
        if start < stop:
            try:
                yield from hot.read_log(task.table, task.bucket, start, stop, list(task.table.schema.names))
            except (NotFound, BucketStopped):
                return  # the caller sees that fewer rows were compared


def _stored(tasks: Sequence[BucketTask], lake: LakeReader, snapshot: SnapshotId) -> Iterator[pa.RecordBatch]:
    return lake.scan(snapshot, columns=list(tasks[0].table.schema.names)) if tasks else iter(())


def _share(batches: Iterator[pa.RecordBatch], tasks: Sequence[BucketTask], share: int, shares: int) -> Hashes:
    """Hashes of the rows that belong to one of several shares."""
    parts = [np.empty(0, np.uint64)]
    schema = to_arrow_schema(tasks[0].table.schema) if tasks else pa.schema([])
    for batch in batches:
        hashes = hash_rows(_as_table(batch, schema), schema.names)
        parts.append(hashes[hashes % np.uint64(shares) == np.uint64(share)] if shares > 1 else hashes)
    return np.concatenate(parts)


def _as_table(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """With the table's types. A value that its type cannot hold was altered: it stays, and equals none."""
    columns = []
    for field in schema:
        column = batch.column(field.name)
        try:
            columns.append(cast_values(column, field.type))
        except pa.ArrowInvalid:
            columns.append(column)
    return pa.Table.from_arrays(columns, schema.names)


def _count_missing(logged: Hashes, stored: Hashes) -> int:
    needed, counts = np.unique(logged, return_counts=True)
    have, have_counts = np.unique(stored, return_counts=True)
    if not len(have):
        return len(logged)
    at = np.minimum(np.searchsorted(have, needed), len(have) - 1)
    present = np.where(have[at] == needed, have_counts[at], 0)
    return int(np.maximum(counts - present, 0).sum())
