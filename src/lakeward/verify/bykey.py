# SPDX-License-Identifier: Apache-2.0
"""Checks a PK table's bucket by key, where the hot store keeps no offset per row (Apache Fluss). The expected rows of
the lake come from a KV snapshot and the changelog between it and the committed offset: played forward if the snapshot
is older, undone by before-images if it is newer. The rows of one bucket at a time are in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeward.changelog import KeyedFold
from lakeward.changelog.columns import changes_of
from lakeward.changelog.rowdiff import altered_offsets
from lakeward.model import OFFSET, ChangeType, Offsets, to_arrow_schema
from lakeward.spi import HotStore, LakeReader
from lakeward.verify.certificate import SHOWN, Finding, FindingKind
from lakeward.verify.lakerows import read_lake
from lakeward.verify.task import BucketTask, Part

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Expected:
    """Rows live at the committed offset, and keys whose row at that offset is unknown."""

    rows: pa.Table
    unknown: pa.Table


def check_by_key(task: BucketTask, hot: HotStore, lake: LakeReader) -> Part:
    """Raises what the hot store raises."""
    return compare_by_key(task, hot, read_lake(task, lake, _names(task)))


def compare_by_key(task: BucketTask, hot: HotStore, lake_batches: Iterable[pa.RecordBatch]) -> Part:
    """`found`: the lake's rows of the bucket."""
    names, holder = _names(task), f"verify-{uuid4()}"
    lake_table = _table(task, names, lake_batches)
    if task.bounds is None:
        why = "the hot store has no such bucket any more"
        return Part(rows=lake_table.num_rows, beyond=(task.not_checked("live rows", why),))
    try:
        snapshot = hot.take_snapshot(task.table, task.bucket, holder)
        if snapshot is None and task.bounds.start > 0:
            why = "no KV snapshot can be read, and the log no longer begins at 0"
            return Part(rows=lake_table.num_rows, beyond=(task.not_checked("live rows", why),))
        held = _table(task, names, [] if snapshot is None else hot.read_snapshot(task.table, snapshot, names))
        expected = _expected(task, hot, names, held, 0 if snapshot is None else snapshot.log_offset)
    finally:
        hot.release_snapshots(task.table, holder)
    return _compare(task, expected, lake_table)


def _names(task: BucketTask) -> list[str]:
    return list(task.table.schema.names if task.deep else task.table.descriptor.primary_key)


def _expected(task: BucketTask, hot: HotStore, names: list[str], held: pa.Table, at: int) -> _Expected:
    low, high = min(at, task.committed), max(at, task.committed)
    batches = list(hot.read_log(task.table, task.bucket, low, high, names))
    changed = _forward(task, names, batches, low, high) if at < task.committed else _back(task, names, batches)
    touched, rows, unknown = changed
    kept = held.filter(pa.array(~_is_in(task, held, touched))) if touched.num_rows else held
    return _Expected(pa.concat_tables([kept, rows]), unknown)


def _forward(
    task: BucketTask, names: list[str], batches: Sequence[pa.RecordBatch], low: int, high: int
) -> tuple[pa.Table, ...]:
    """(keys that changed, their rows now, none unknown)."""
    fold = KeyedFold(low, high, task.table.descriptor.primary_key)
    for batch in batches:
        fold.see(batch)
    fold.seal()
    return fold.touched, _table(task, names, (fold.live(b) for b in batches)), _table(task, names, ())


def _back(task: BucketTask, names: list[str], batches: Sequence[pa.RecordBatch]) -> tuple[pa.Table, ...]:
    """(keys that changed, their rows before that, those of which no before-image tells)."""
    records = _table(task, names, batches)
    if not records.num_rows:
        return records, records, records
    changes = np.concatenate([changes_of(b) for b in batches])
    (ids,) = _number(task, [records])
    first = np.unique(ids, return_index=True)[1]
    firsts, kinds = records.take(pa.array(first)), changes[first]
    before = np.isin(kinds, (ChangeType.UPDATE_BEFORE, ChangeType.DELETE))
    return firsts, firsts.filter(pa.array(before)), firsts.filter(pa.array(kinds == ChangeType.UPDATE_AFTER))


def _compare(task: BucketTask, expected: _Expected, lake_rows: pa.Table) -> Part:
    expected_rows, lake_numbers, unknown = _number(task, [expected.rows, lake_rows, expected.unknown])
    unique, counts = np.unique(lake_numbers, return_counts=True)
    parts = (
        (
            FindingKind.MISSING,
            np.setdiff1d(expected_rows, unique),
            expected.rows,
            expected_rows,
            "keys are not in the lake",
        ),
        (FindingKind.DUPLICATE, unique[counts > 1], lake_rows, lake_numbers, "keys are in the lake more than once"),
        (
            FindingKind.STRAY,
            np.setdiff1d(unique, np.concatenate([expected_rows, unknown])),
            lake_rows,
            lake_numbers,
            "keys are in the lake and should not be",
        ),
    )
    findings = [
        _finding(task, kind, ids, rows, numbers, words) for kind, ids, rows, numbers, words in parts if len(ids)
    ]
    compared = 0
    if task.deep:
        chosen = _sampled(task, expected_rows)
        hot_rows = _with(expected.rows, expected_rows).filter(pa.array(np.isin(expected_rows, chosen)))
        different, compared = altered_offsets(hot_rows, _with(lake_rows, lake_numbers), list(task.table.schema.names))
        if len(different):
            findings.append(
                _finding(
                    task, FindingKind.ALTERED, different, lake_rows, lake_numbers, "rows differ from the hot store"
                )
            )
    lost = len(np.unique(unknown))
    beyond = (task.not_checked(f"{lost} keys replaced since", "no before-images in the changelog"),) if lost else ()
    return Part(findings=tuple(findings), rows=lake_rows.num_rows, compared=compared, beyond=beyond)


def _sampled(task: BucketTask, ids: Ids) -> Ids:
    """The keys whose values are compared: all, or the sample's share of them."""
    unique = np.unique(ids)
    windows = [(at, min(at + task.window_rows, len(unique))) for at in range(0, len(unique), task.window_rows)]
    chosen = [unique[low:high] for low, high in task.sampled(windows)]
    return np.concatenate([unique[:0], *chosen])


def _finding(task: BucketTask, kind: FindingKind, ids: Offsets, rows: pa.Table, numbers: Ids, words: str) -> Finding:
    at = np.flatnonzero(np.isin(numbers, ids[:SHOWN]))[:SHOWN]
    keys = rows.select(list(task.table.descriptor.primary_key)).take(pa.array(at)).to_pylist()
    named = ", ".join("/".join(str(v) for v in key.values()) for key in keys)
    return Finding(kind=kind, bucket=task.bucket, count=len(ids), words=f"{len(ids)} {words} (first: {named})")


# ---- keys as numbers -------------------------------------------------------------------------------------------------
def _number(task: BucketTask, tables: Sequence[pa.Table]) -> list[Ids]:
    """A number per row; equal keys have equal numbers in all the tables."""
    whole = pa.concat_tables([t.select(list(task.table.descriptor.primary_key)) for t in tables])
    ids: Ids = np.zeros(whole.num_rows, np.int64)
    for column in whole.columns:
        codes = column.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
        ids = np.unique(ids * (codes.max(initial=0) + 1) + codes, return_inverse=True)[1].astype(np.int64)
    return np.split(ids, np.cumsum([t.num_rows for t in tables])[:-1])


def _is_in(task: BucketTask, rows: pa.Table, keys: pa.Table) -> npt.NDArray[np.bool_]:
    left, right = _number(task, [rows, keys])
    return np.isin(left, right)


def _with(rows: pa.Table, ids: Ids) -> pa.Table:
    """Numbers in the place of offsets, which is what rows are matched by."""
    return rows.append_column(OFFSET, pa.array(ids))


def _table(task: BucketTask, names: list[str], batches: Iterable[pa.RecordBatch]) -> pa.Table:
    schema = pa.schema([f for f in to_arrow_schema(task.table.schema) if f.name in names])
    schema = pa.schema([schema.field(n).with_nullable(True) for n in names])
    return pa.concat_tables(
        [schema.empty_table(), *(_cast(pa.Table.from_batches([b]).select(names), schema) for b in batches)]
    )


def _cast(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The lake has one integer type where Fluss has three."""
    return rows if rows.schema.equals(schema) else rows.cast(schema)
