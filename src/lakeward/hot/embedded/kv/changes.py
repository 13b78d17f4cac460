# SPDX-License-Identifier: Apache-2.0
"""From rows and their before-images to changelog records: pure, vectorised, as if the rows came one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model import ChangeType, Offsets

Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]

ABSENT = -1
"""Offset of a row that is not there, and the before-image index of a row whose before-image is in KV."""


@dataclass(frozen=True)
class Before:
    """The row that KV held for each key when the put began: in the present schema, null where there was none."""

    bodies: pa.BinaryArray
    offsets: Offsets

    @property
    def present(self) -> Mask:
        return np.not_equal(self.offsets, ABSENT)


@dataclass(frozen=True)
class ChangePlan:
    """Changelog records of one put, in order.

    `rows` names for each record the row of the put it comes from, and `offsets`, `kinds`, `prev` what it is. `images`
    says where its values are: below the number of rows n, the put's own row; from n on, KV's before-image of row
    `images - n`. `inserted` and `deleted` count by how much the number of live rows changes.
    """

    rows: Indices
    images: Indices
    kinds: npt.NDArray[np.uint8]
    offsets: Offsets
    prev: Offsets
    inserted: int = 0
    deleted: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def prev_array(self) -> pa.Array:
        """`__prev_offset`: null on +I."""
        return pa.array(self.prev, mask=self.prev == ABSENT)

    @property
    def leaves_row(self) -> Mask:
        """Records after which KV holds their row: +I and +U."""
        leaves: Mask = (self.kinds == ChangeType.INSERT) | (self.kinds == ChangeType.UPDATE_AFTER)
        return leaves


def group_keys(keys: pa.BinaryArray) -> Indices | None:
    """For each row a number that rows of the same key share; None when every key is there once."""
    if len(keys) <= 1:
        return None
    codes = keys.dictionary_encode()
    if len(codes.dictionary) == len(keys):
        return None
    groups: Indices = codes.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return groups


def plan_upsert(
    bodies: pa.BinaryArray, groups: Indices | None, before: Before, base: int, *, with_before_images: bool
) -> ChangePlan:
    """Records of an upsert, the first of which gets offset `base`. A row that is as its before-image leaves
    no record.
    """
    count = len(bodies)
    order, pred = _predecessors(groups, count)
    present = before.present | (pred != ABSENT)
    changed = ~(present & _same(bodies, before.bodies, pred))
    per_update = 2 if with_before_images else 1
    records = np.where(changed, np.where(present, per_update, 1), 0)
    after = base + np.cumsum(records) - 1
    prev = np.where(present, _written_before(order, groups, changed, after, before.offsets), ABSENT)
    return _lay_out(records, present, pred, after, prev)


def plan_delete(groups: Indices | None, before: Before, base: int) -> ChangePlan:
    """Records of a delete: one -D for each key that is there; the second delete of a key finds nothing."""
    _, pred = _predecessors(groups, len(before.offsets))
    rows = np.flatnonzero(before.present & (pred == ABSENT))
    return ChangePlan(
        rows=rows,
        images=rows + len(before.offsets),
        kinds=np.full(len(rows), ChangeType.DELETE, np.uint8),
        offsets=base + np.arange(len(rows), dtype=np.int64),
        prev=before.offsets[rows],
        deleted=len(rows),
    )


def _predecessors(groups: Indices | None, count: int) -> tuple[Indices, Indices]:
    """Rows ordered by key and then as they came, and for each row the one before it of the same key (or ABSENT)."""
    pred = np.full(count, ABSENT, np.int64)
    if groups is None:
        return np.arange(count, dtype=np.int64), pred
    order = np.argsort(groups, kind="stable")
    repeats = np.flatnonzero(groups[order[1:]] == groups[order[:-1]])
    pred[order[repeats + 1]] = order[repeats]
    return order, pred


def _same(bodies: pa.BinaryArray, stored: pa.BinaryArray, pred: Indices) -> Mask:
    if (pred != ABSENT).any():
        where = np.where(pred != ABSENT, pred, np.arange(len(pred)) + len(pred))
        stored = pa.concat_arrays([bodies, stored]).take(pa.array(where))
    return np.asarray(pc.fill_null(pc.equal(bodies, stored), False).to_numpy(zero_copy_only=False))


def _written_before(order: Indices, groups: Indices | None, changed: Mask, after: Offsets, stored: Offsets) -> Offsets:
    """For each row the offset of the record that wrote its before-image: of this put, else the stored one."""
    if groups is None:
        return stored
    at = np.arange(len(order), dtype=np.int64)
    starts = np.concatenate([[True], groups[order[1:]] != groups[order[:-1]]])
    start = np.maximum.accumulate(np.where(starts, at, 0))
    last = np.concatenate([[ABSENT], np.maximum.accumulate(np.where(changed[order], at, ABSENT))[:-1]])
    written = np.empty(len(order), np.int64)
    written[order] = np.where(last >= start, after[order[np.maximum(last, 0)]], stored[order])
    return written


def _lay_out(records: Indices, present: Mask, pred: Indices, after: Offsets, prev: Offsets) -> ChangePlan:
    count = len(records)
    rows = np.repeat(np.arange(count, dtype=np.int64), records)
    ends = np.cumsum(records)
    is_after = np.zeros(len(rows), np.bool_)
    is_after[ends[records > 0] - 1] = True
    before_image = np.where(pred != ABSENT, pred, np.arange(count, dtype=np.int64) + count)
    updated = present[rows]
    kinds = np.where(is_after, np.where(updated, ChangeType.UPDATE_AFTER, ChangeType.INSERT), ChangeType.UPDATE_BEFORE)
    return ChangePlan(
        rows=rows,
        images=np.where(is_after, rows, before_image[rows]),
        kinds=kinds.astype(np.uint8),
        offsets=np.where(is_after, after[rows], after[rows] - 1),
        prev=prev[rows],
        inserted=int((~updated).sum()),
    )
