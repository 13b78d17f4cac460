# SPDX-License-Identifier: Apache-2.0
"""The system columns of a changelog batch as numpy arrays, and a batch cut to what a reader may see."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model import CHANGE_TYPE, OFFSET, PREV_OFFSET, ChangeType, Offsets

Mask = npt.NDArray[np.bool_]
Changes = npt.NDArray[np.int8]

NO_PREV = -1
"""Stands for a null `__prev_offset`; offsets start at 0."""

# Looked up by change type.
_ADDS = np.array([c in (ChangeType.APPEND, ChangeType.INSERT, ChangeType.UPDATE_AFTER) for c in ChangeType])
_REPLACES = np.array([c in (ChangeType.UPDATE_AFTER, ChangeType.DELETE) for c in ChangeType])

_NAMES = pa.array([c.word for c in ChangeType])


def offsets_of(batch: pa.RecordBatch) -> Offsets:
    values: Offsets = batch.column(OFFSET).to_numpy(zero_copy_only=False)
    return values


def changes_of(batch: pa.RecordBatch) -> Changes:
    """The change types; a batch without the column (an append-only log, a KV snapshot) adds every row."""
    if CHANGE_TYPE not in batch.schema.names:
        return np.zeros(batch.num_rows, np.int8)
    values: Changes = batch.column(CHANGE_TYPE).to_numpy(zero_copy_only=False)
    return values


def prev_offsets_of(batch: pa.RecordBatch) -> Offsets:
    if PREV_OFFSET not in batch.schema.names:
        return np.full(batch.num_rows, NO_PREV, np.int64)
    values: Offsets = pc.fill_null(batch.column(PREV_OFFSET), NO_PREV).to_numpy(zero_copy_only=False)
    return values


def adds_row(changes: Changes) -> Mask:
    """Records that leave a row behind: +A, +I, +U."""
    return _ADDS[changes]


def replaces_row(changes: Changes) -> Mask:
    """Records that end an older row: +U, -D."""
    return _REPLACES[changes]


def keep_rows(batch: pa.RecordBatch, keep: Mask) -> pa.RecordBatch:
    """The rows of `keep` without the changelog's own columns: what a lake writer takes."""
    dropped = [name for name in (CHANGE_TYPE, PREV_OFFSET) if name in batch.schema.names]
    lean = batch.drop_columns(dropped) if dropped else batch
    return lean if keep.all() else lean.filter(pa.array(keep))


def without_prev(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Changes as a format that merges by key takes them."""
    return batch.drop_columns([PREV_OFFSET]) if PREV_OFFSET in batch.schema.names else batch


def with_change_name(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Changes as a changelog in a lake has them: `__change_type` is the change's name, first."""
    names = change_names(batch)
    lean = keep_rows(batch, np.ones(batch.num_rows, np.bool_))
    fields = [pa.field(CHANGE_TYPE, pa.string(), nullable=False), *lean.schema]
    return pa.RecordBatch.from_arrays([names, *lean.columns], schema=pa.schema(fields))


def with_change_words(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of the log with `__change_type` as a word; one without the column is left alone."""
    at = batch.schema.get_field_index(CHANGE_TYPE)
    return batch if at < 0 else batch.set_column(at, pa.field(CHANGE_TYPE, pa.string(), False), change_names(batch))


def change_names(batch: pa.RecordBatch) -> pa.Array:
    """Change type of each row as a word; appends are inserts. Rows of a lake's changelog carry theirs."""
    if CHANGE_TYPE in batch.schema.names and not pa.types.is_integer(batch.schema.field(CHANGE_TYPE).type):
        return batch.column(CHANGE_TYPE)
    return _NAMES.take(pa.array(changes_of(batch)))


def with_change_codes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of a lake's changelog with `__change_type` as the log has it; others are left alone."""
    if CHANGE_TYPE not in batch.schema.names or pa.types.is_integer(batch.schema.field(CHANGE_TYPE).type):
        return batch
    above_append = pc.index_in(batch.column(CHANGE_TYPE).cast(pa.string()), value_set=_NAMES[1:])
    found = pc.add(above_append, 1).cast(pa.int8())
    return batch.set_column(batch.schema.get_field_index(CHANGE_TYPE), CHANGE_TYPE, found)


def with_change(batch: pa.RecordBatch, change: ChangeType) -> pa.RecordBatch:
    """Rows that stand for one kind of change each."""
    kinds = pa.array(np.full(batch.num_rows, int(change), np.int8))
    return without_prev(keep_rows(batch, np.ones(batch.num_rows, np.bool_))).append_column(CHANGE_TYPE, kinds)
