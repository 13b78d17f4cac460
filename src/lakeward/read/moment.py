# SPDX-License-Identifier: Apache-2.0
"""A PK table as it was at a moment between two lake snapshots: the older one, and the changes up to that moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from lakeward.changelog.columns import with_change_codes
from lakeward.errors import HistoryGone
from lakeward.model import BUCKET, Bucket, OffsetMap, OffsetRange, TableInfo, TablePath
from lakeward.read.plan import UnionPlan
from lakeward.read.streamrows import StreamRows
from lakeward.spi import HotStore, KvSnapshot, LakeSnapshot, LogBounds


@dataclass(frozen=True)
class ChangesAsLog(HotStore):
    """A log that goes back to where the changelog in a lake begins."""

    rows: StreamRows
    has_prev_offset = False

    def read_log(
        self, table: TableInfo, bucket: Bucket, start: int, stop: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        names = list(table.schema.names if columns is None else columns)
        for batch in self.rows.range(bucket, OffsetRange(start, stop), names):
            yield with_change_codes(batch.drop_columns([BUCKET]))

    def load_table(self, path: TablePath) -> TableInfo:
        return self.rows.hot.load_table(path)

    def list_tables(self) -> Sequence[TablePath]:
        return self.rows.hot.list_tables()

    def freeze(self, table: TableInfo) -> Mapping[Bucket, LogBounds]:
        return self.rows.hot.freeze(table)

    def offset_at(self, table: TableInfo, bucket: Bucket, at_ms: int) -> int:
        return self.rows.offset_at(bucket, at_ms, self.rows.ends().get(bucket, 0))

    def take_snapshot(self, table: TableInfo, bucket: Bucket, holder: str) -> KvSnapshot | None:
        return self.rows.hot.take_snapshot(table, bucket, holder)

    def read_snapshot(
        self, table: TableInfo, snapshot: KvSnapshot, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        return self.rows.hot.read_snapshot(table, snapshot, columns)

    def release_snapshots(self, table: TableInfo, holder: str) -> None:
        self.rows.hot.release_snapshots(table, holder)

    def close(self) -> None:
        self.rows.hot.close()


def plan_moment(rows: StreamRows, moment: datetime) -> UnionPlan | None:
    """The state after the last change of that moment. None: the changelog does not go back to a snapshot before it."""
    at_ms = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    base = find_base(() if rows.lake is None else rows.lake.snapshots(), at_ms)
    base_snapshot = None if base is None or rows.lake is None else rows.lake.load_snapshot(base.snapshot_id)
    offsets = (base_snapshot.offsets if base_snapshot is not None else None) or OffsetMap()
    tails = plan_tails(offsets, rows.offsets_at(at_ms + 1, rows.ends()))
    try:
        rows.check_kept({b: r.start for b, r in tails.items()}, {b: r.stop for b, r in tails.items()})
    except HistoryGone:
        return None
    return UnionPlan(
        snapshot_id=None if base_snapshot is None else base_snapshot.snapshot_id,
        lake_offsets=offsets,
        tails=tails,
        lake_at_ms=at_ms,
    )


def find_base(snapshots: Sequence[LakeSnapshot], at_ms: int) -> LakeSnapshot | None:
    """The newest snapshot at or before a moment. Pure."""
    return max((s for s in snapshots if s.committed_at_ms <= at_ms), key=lambda s: s.committed_at_ms, default=None)


def plan_tails(base: Mapping[Bucket, int], stops: Mapping[Bucket, int]) -> dict[Bucket, OffsetRange]:
    """The changes on top of a snapshot, bucket by bucket. Pure."""
    return {b: OffsetRange(base.get(b, 0), stop) for b, stop in stops.items() if base.get(b, 0) < stop}
