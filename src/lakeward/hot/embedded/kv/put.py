# SPDX-License-Identifier: Apache-2.0
"""One put, worked out: rows and before-images in, changelog batch and KV writes out. Reads KV, changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.bucketing import find_ambiguous
from lakeward.errors import InvalidRows
from lakeward.hot.embedded.kv.changes import (
    ABSENT,
    Before,
    ChangePlan,
    Indices,
    Mask,
    group_keys,
    plan_delete,
    plan_upsert,
)
from lakeward.hot.embedded.kv.keycodec import KeyCodec
from lakeward.hot.embedded.kv.rowcodec import RowCodec, StoredRows
from lakeward.hot.embedded.kv.rows import align_keys, align_rows, check_others_nullable
from lakeward.hot.embedded.kv.structcodec import binary_of
from lakeward.model import (
    PREV_OFFSET_FIELD,
    ChangeType,
    Column,
    Offsets,
    Schema,
    default_scalar,
    fit_column,
    to_arrow_type,
)

Read = Callable[[list[bytes]], list[bytes | None]]


@dataclass(frozen=True)
class Put:
    """Records to append to the log (`rows` with `__prev_offset` last, `kinds`) and to write to KV after it. `keys` get
    the rows `bodies` with `offsets`; without bodies they are deleted."""

    rows: pa.RecordBatch
    kinds: npt.NDArray[np.uint8]
    keys: list[bytes]
    bodies: pa.BinaryArray | None
    offsets: Offsets
    growth: int


@dataclass(frozen=True)
class _Image:
    """KV's answer for the keys of a put: which are there, and their rows."""

    present: Mask
    stored: StoredRows

    def spread(self, arrays: list[pa.Array]) -> list[pa.Array]:
        """Columns of the stored rows as columns of the put's rows, null where nothing was stored."""
        if self.present.all():
            return arrays
        at = pa.array(np.cumsum(self.present) - 1, mask=~self.present)
        return [a.take(at) for a in arrays]

    def filled(self, spread: pa.Array, field: pa.Field) -> pa.Array:
        """With the column's default where nothing was stored."""
        default = default_scalar(field)
        if not default.is_valid or self.present.all():
            return spread
        return pc.if_else(pa.array(self.present), spread, default)


@dataclass(frozen=True)
class _SortedKeys:
    """The keys of a put as they came, and in byte order: RocksDB reads and writes sorted keys about twice as fast."""

    array: pa.BinaryArray
    order: Indices
    listed: list[bytes]

    @classmethod
    def of(cls, keys: pa.BinaryArray) -> _SortedKeys:
        order = pc.array_sort_indices(keys).to_numpy().astype(np.int64)
        return cls(keys, order, _take(keys, order).to_pylist())

    @property
    def back(self) -> Indices:
        """For each row where its key stands in `listed`."""
        back = np.empty(len(self.order), np.int64)
        back[self.order] = np.arange(len(self.order))
        return back

    def pick(self, rows: Indices) -> list[bytes]:
        """The keys of these rows; equal ones stay in the order they came in, as the sort is stable."""
        if len(rows) == len(self.order):
            return self.listed
        picked: list[bytes] = self.array.take(pa.array(rows)).to_pylist()
        return picked


class PutBuilder:
    """Works puts out for one schema of a table. Immutable; replaced when the schema grows."""

    def __init__(
        self,
        table: str,
        codec: RowCodec,
        primary_key: Sequence[str],
        *,
        with_before_images: bool,
        is_hudi: bool = False,
    ) -> None:
        """`is_hudi`: keys are to become record keys of a Hudi table."""
        self.table, self._is_hudi = table, is_hudi
        self.codec = codec
        self.keys = KeyCodec([codec.arrow.field(name) for name in primary_key])
        self._with_before_images = with_before_images
        self.log_schema = codec.arrow.append(PREV_OFFSET_FIELD)

    @property
    def schema(self) -> Schema:
        return self.codec.schema

    def in_today(
        self, batch: pa.RecordBatch, named: Sequence[str] | None, sent: Schema | None
    ) -> tuple[pa.RecordBatch, Sequence[str] | None]:
        """Rows that were made for the schema `sent`, with the names of today; columns that were dropped since are left
        out. Columns that the writer does not know are not set. Raises `InvalidRows`."""
        if sent is None or sent.schema_id == self.schema.schema_id:
            return batch, named
        if unknown := [name for name in batch.schema.names if name not in sent.names]:
            reason = f"schema {sent.schema_id} has no such column; there are {', '.join(sent.names)}"
            raise InvalidRows(table=self.table, row=0, column=unknown[0], reason=reason)
        today = {c.name: self.schema.by_id[c.column_id].name for c in sent.columns if c.column_id in self.schema.by_id}
        current_names = [name for name in batch.schema.names if name in today]
        arrays = [self._in_today(batch.column(name), sent.column(name)) for name in current_names]
        renamed = pa.RecordBatch.from_arrays(arrays, names=[today[name] for name in current_names])
        return renamed, [today[name] for name in (sent.names if named is None else named) if name in today]

    def _in_today(self, values: pa.Array, sent: Column) -> pa.Array:
        """Nested values with the fields of today."""
        is_as_sent = sent.field_ids and values.type == to_arrow_type(sent.type)
        return fit_column(values, sent, self.schema.by_id[sent.column_id]) if is_as_sent else values

    def upsert(self, batch: pa.RecordBatch, named: Sequence[str] | None, read: Read, base: int) -> Put:
        """`named`: only these columns (and the key) are set, the others stay as they are. Raises `InvalidRows`."""
        aligned_rows = align_rows(self.table, self.codec.arrow, batch, named, self.keys.names)
        if self._is_hudi and (wrong := find_ambiguous(self.keys.names, [aligned_rows[n] for n in self.keys.names])):
            row, column, reason = wrong
            raise InvalidRows(table=self.table, row=row, column=column, reason=reason)
        keys = _SortedKeys.of(self.keys.encode(aligned_rows))
        image = self._read_image(keys, read)
        rows = aligned_rows if named is None else self._completed(aligned_rows, image)
        bodies = self.codec.encode(rows)
        groups = group_keys(keys.array)
        plan = plan_upsert(bodies, groups, self._before(image), base, with_before_images=self._with_before_images)
        after, last = np.full(len(bodies), ABSENT, np.int64), plan.leaves_row
        after[plan.rows[last]] = plan.offsets[last]
        written = keys.order[after[keys.order] != ABSENT]
        return Put(
            rows=self._changelog(plan, rows, image),
            kinds=plan.kinds,
            keys=keys.pick(written),
            bodies=_take(bodies, written),
            offsets=after[written],
            growth=plan.inserted,
        )

    def delete(self, batch: pa.RecordBatch, read: Read, base: int) -> Put:
        """Only the key columns of `batch` count. Raises `InvalidRows`."""
        keys = _SortedKeys.of(self.keys.encode(align_keys(self.table, self.codec.arrow, batch, self.keys.names)))
        image = self._read_image(keys, read)
        plan = plan_delete(group_keys(keys.array), self._before(image, with_bodies=False), base)
        return Put(
            rows=self._changelog(plan, None, image),
            kinds=plan.kinds,
            keys=keys.pick(plan.rows),
            bodies=None,
            offsets=plan.offsets,
            growth=-plan.deleted,
        )

    def find(self, batch: pa.RecordBatch, read: Read) -> StoredRows:
        """Stored rows of the keys of `batch`, in their order, without keys that have none. Raises `InvalidRows`."""
        return self._read_image(_SortedKeys.of(self.key_of(batch)), read).stored

    def stamps(self, batch: pa.RecordBatch, read: Read) -> tuple[Offsets, Offsets]:
        """Offset and time of what is stored for each key; `ABSENT` where nothing is."""
        image = self._read_image(_SortedKeys.of(self.key_of(batch)), read)
        offsets, times = (np.full(batch.num_rows, ABSENT, np.int64) for _ in range(2))
        offsets[image.present], times[image.present] = image.stored.offsets, image.stored.times
        return offsets, times

    def key_of(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        """Each row's key, as it is stored. Raises `InvalidRows`."""
        return self.keys.encode(align_keys(self.table, self.codec.arrow, batch, self.keys.names))

    def replay(self, batch: pa.RecordBatch, kinds: npt.NDArray[np.int8]) -> tuple[list[bytes], pa.BinaryArray, Mask]:
        """KV writes of changelog records: keys, rows, and which of them are deleted. -U records are left out."""
        kept = kinds != ChangeType.UPDATE_BEFORE
        rows = batch.select(self.codec.arrow.names)
        rows = rows if kept.all() else rows.filter(pa.array(kept))
        return self.keys.encode(rows).to_pylist(), self.codec.encode(rows), kinds[kept] == ChangeType.DELETE

    def _read_image(self, keys: _SortedKeys, read: Read) -> _Image:
        values = _take(binary_of(read(keys.listed)), keys.back)
        present = values.is_valid().to_numpy(zero_copy_only=False)
        return _Image(present, self.codec.unpack(values if present.all() else values.drop_null()))

    def _before(self, image: _Image, *, with_bodies: bool = True) -> Before:
        offsets = np.full(len(image.present), ABSENT, np.int64)
        offsets[image.present] = image.stored.offsets
        if not with_bodies:
            return Before(pa.nulls(len(offsets), pa.binary()), offsets)
        return Before(image.spread([self.codec.in_schema(image.stored)])[0], offsets)

    def _completed(self, given: pa.RecordBatch, image: _Image) -> pa.RecordBatch:
        """Full rows of a partial update: the other columns from KV, their default for keys that are not there."""
        others = [name for name in self.codec.arrow.names if name not in given.schema.names]
        columns_of_others = [self.schema.column(name) for name in others]
        check_others_nullable(self.table, self.codec.arrow, others, ~image.present)
        spread = image.spread(self.codec.decode(image.stored, columns_of_others))
        columns = {name: image.filled(a, self.codec.arrow.field(name)) for name, a in zip(others, spread, strict=True)}
        columns |= dict(zip(given.schema.names, given.columns, strict=True))
        return pa.RecordBatch.from_arrays([columns[name] for name in self.codec.arrow.names], schema=self.codec.arrow)

    def _changelog(self, plan: ChangePlan, rows: pa.RecordBatch | None, image: _Image) -> pa.RecordBatch:
        arrays = self._stored_images(plan, image) if rows is None else self._images(plan, rows, image)
        return pa.RecordBatch.from_arrays([*arrays, plan.prev_array], schema=self.log_schema)

    def _stored_images(self, plan: ChangePlan, image: _Image) -> list[pa.Array]:
        """The rows of KV that the plan names, each once, in the order of the put."""
        wanted = np.zeros(len(image.present), np.bool_)
        wanted[plan.images[plan.images >= len(wanted)] - len(wanted)] = True
        return self.codec.decode(image.stored.filter(wanted[image.present]))

    def _images(self, plan: ChangePlan, rows: pa.RecordBatch, image: _Image) -> list[pa.Array]:
        count = rows.num_rows
        from_kv = plan.images >= count
        if not from_kv.any():
            return list(_take(rows, plan.images).columns)
        # each stored row is named by one record, and those stand in the order of the put
        at = np.where(from_kv, count + np.cumsum(from_kv) - 1, plan.images)
        stored = self._stored_images(plan, image)
        return [pa.concat_arrays([new, old]).take(pa.array(at)) for new, old in zip(rows.columns, stored, strict=True)]


def _take(values: Any, at: Indices) -> Any:
    """`values.take`, which copies, only where it changes anything: rows often come in order, and all of them count."""
    same = len(at) == len(values) and bool((at == np.arange(len(at))).all())
    return values if same else values.take(pa.array(at))
