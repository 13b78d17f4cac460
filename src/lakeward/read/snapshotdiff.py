# SPDX-License-Identifier: Apache-2.0
"""Changes of a PK table's rows between two lake snapshots: for tables without a changelog whose log does not reach back
far enough. Only the first and last image of a row are known; a delete comes at the end of the range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.changelog.columns import offsets_of
from lakeward.changelog.keyed import pair_rows, rows_not_in
from lakeward.model import (
    CHANGE_TYPE,
    LAKE_NAMES,
    OFFSET,
    TIMESTAMP,
    TIMESTAMP_COLUMN_TYPE,
    Bucket,
    ChangeType,
    OffsetMap,
    OffsetSet,
    SnapshotId,
    TableInfo,
)
from lakeward.read.tail import scan_bucket
from lakeward.spi import LakeReader, LakeSnapshot

_ORDER = "__order"


@dataclass(frozen=True)
class SnapshotPair:
    lake: LakeReader
    table: TableInfo
    base: LakeSnapshot
    head: LakeSnapshot

    def ends(self) -> OffsetMap:
        return self.head.offsets or OffsetMap()

    def changes(self, bucket: Bucket, columns: Sequence[str], key: Sequence[str]) -> pa.Table | None:
        """Changes of one bucket in order: `columns`, `__change_type` as a word, and the lake's system columns. None:
        nothing changed. Holds the changed rows in memory, and eight bytes for each row of the bucket."""
        begin, end = (self.base.offsets or OffsetMap()).get(bucket, 0), self.ends().get(bucket, 0)
        names = list(dict.fromkeys((*columns, *key, *LAKE_NAMES)))
        added = _table(self._scan(self.head.snapshot_id, bucket, names, pc.field(OFFSET) >= begin))
        stayed = _offsets(self._scan(self.head.snapshot_id, bucket, [OFFSET], pc.field(OFFSET) < begin))
        removed_rows = _table(_without(self._scan(self.base.snapshot_id, bucket, names), stayed))
        if removed_rows is None and added is None:
            return None
        removed_rows = removed_rows if removed_rows is not None else added.slice(0, 0)  # type: ignore[union-attr]
        added = added if added is not None else removed_rows.slice(0, 0)
        return diff_rows(removed_rows, added, key, end, self.head.committed_at_ms).select(
            [*columns, CHANGE_TYPE, *LAKE_NAMES]
        )

    def _scan(
        self, snapshot: SnapshotId, bucket: Bucket, names: Sequence[str], filter: pc.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        return scan_bucket(self.lake, self.table, snapshot, bucket, list(names), filter)


def diff_rows(gone: pa.Table, added: pa.Table, key: Sequence[str], end: int, at_ms: int) -> pa.Table:
    """Rows that went and rows that came, as changes in offset order: one that went is an update's where a row with its
    key came, else a delete's. Pure."""
    went, came = pair_rows(gone, added, key)
    before, after = gone.take(pa.array(went)), added.take(pa.array(came))
    deleted = gone.take(pa.array(rows_not_in(gone, added, key)))
    moment = pa.scalar(datetime.fromtimestamp(at_ms / 1000, UTC), TIMESTAMP_COLUMN_TYPE)
    at_end = [pa.array(np.full(deleted.num_rows, end - 1)), pa.repeat(moment, deleted.num_rows)]
    parts = [
        _kind(_at(before, pc.subtract(after.column(OFFSET), 1), after.column(TIMESTAMP)), ChangeType.UPDATE_BEFORE),
        _kind(added.take(pa.array(np.unique(came))), ChangeType.UPDATE_AFTER),
        _kind(added.take(pa.array(rows_not_in(added, gone, key))), ChangeType.INSERT),
        _kind(_at(deleted, *at_end), ChangeType.DELETE),
    ]
    names = [*added.column_names, CHANGE_TYPE, _ORDER]
    all_rows = pa.concat_tables([p.select(names) for p in parts], promote_options="permissive")
    return all_rows.sort_by([(OFFSET, "ascending"), (_ORDER, "ascending")]).drop_columns([_ORDER])


def _at(rows: pa.Table, offsets: pa.Array, moments: pa.Array) -> pa.Table:
    rows = rows.set_column(rows.column_names.index(OFFSET), OFFSET, offsets)
    return rows.set_column(rows.column_names.index(TIMESTAMP), TIMESTAMP, moments)


def _kind(rows: pa.Table, change: ChangeType) -> pa.Table:
    order = pa.array(np.full(rows.num_rows, int(change), np.int8))
    return rows.append_column(CHANGE_TYPE, pa.repeat(change.word, rows.num_rows)).append_column(_ORDER, order)


def _table(batches: Iterable[pa.RecordBatch]) -> pa.Table | None:
    found = [b for b in batches if b.num_rows]
    return pa.Table.from_batches(found) if found else None


def _offsets(batches: Iterable[pa.RecordBatch]) -> OffsetSet:
    found = [offsets_of(b) for b in batches if b.num_rows]
    return OffsetSet(np.concatenate(found)) if found else OffsetSet()


def _without(batches: Iterable[pa.RecordBatch], stayed: OffsetSet) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.filter(pa.array(~stayed.mask(offsets_of(batch))))
