# SPDX-License-Identifier: Apache-2.0
"""Reads one table: its base, its snapshots and its rows for every format; files for those that delete by position."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Generic

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import InvalidRequest, LakeSchemaBroken
from lakeward.lake.core.log import G
from lakeward.lake.core.reconcile import describe, load_base
from lakeward.lake.core.table import LakeTable, PositionTable
from lakeward.lake.satisfiable import filter_columns
from lakeward.model import LAKE_NAMES, OFFSET, Bucket, LakeBase, Offsets, OffsetSet, SnapshotId
from lakeward.spi import LakeFile, LakeReader, LakeSnapshot, LakeTotals


@dataclass(frozen=True)
class RowScan:
    """A requested scan. `schema`: columns to read, including those of the filter. `buckets` None: all."""

    schema: pa.Schema
    filter: pc.Expression | None
    filtered: tuple[str, ...]
    """The filter's columns."""

    buckets: AbstractSet[Bucket | None] | None

    def has(self, bucket: Bucket | None) -> bool:
        return self.buckets is None or bucket in self.buckets


class CoreReader(LakeReader, Generic[G]):
    def __init__(self, table: LakeTable[G]) -> None:
        self._info, self._log = table.info, table.log

    def load_base(self) -> LakeBase:
        return load_base(self._log, self._log.load(), self._info.table_id)

    def load_base_as_is(self) -> LakeBase:
        return load_base(self._log, self._log.load(), self._info.table_id, as_is=True)

    def snapshots(self) -> Sequence[LakeSnapshot]:
        retained = (describe(self._log, s) for s in self._log.newest_first(self._log.load()))
        return sorted(retained, key=lambda s: s.sequence)

    def load_snapshot(self, snapshot_id: SnapshotId | None = None) -> LakeSnapshot | None:
        ground = self._log.load()
        chosen = ground.head_id if snapshot_id is None else snapshot_id
        if chosen is None:
            return None
        snapshot, own = self._log.get(ground, chosen), self._log.own_at(ground, chosen)
        return replace(describe(self._log, snapshot), offsets=None if own is None else self._log.offsets(own))


class ScanReader(CoreReader[G]):
    """Reader of a format whose rows core scans."""

    @abstractmethod
    def row_schema(self, ground: G) -> pa.Schema:
        """Schema of rows as reads return them: the current columns, then the system columns."""

    @abstractmethod
    def read_rows(self, ground: G, snapshot_id: SnapshotId, scan: RowScan) -> Iterator[tuple[Bucket | None, pa.Table]]:
        """Reads live rows of a snapshot that the log has, with the columns of `scan.schema`, bucket by bucket. May
        leave out rows that do not match the filter."""

    def scan(
        self,
        snapshot_id: SnapshotId,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        buckets: Iterable[Bucket] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        return (b for _, b in self.scan_buckets(snapshot_id, columns=columns, filter=filter, buckets=buckets))

    def scan_buckets(
        self,
        snapshot_id: SnapshotId,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        buckets: Iterable[Bucket | None] | None = None,
        without: Mapping[Bucket, OffsetSet] | None = None,
    ) -> Iterator[tuple[Bucket | None, pa.RecordBatch]]:
        ground = self._log.load()
        self._log.get(ground, snapshot_id)
        full_schema = self.row_schema(ground)
        names = list(columns) if columns is not None else [n for n in full_schema.names if n not in LAKE_NAMES]
        if missing := [n for n in names if n not in full_schema.names]:
            if gone_columns := [n for n in missing if n in self._info.schema.names]:
                raise LakeSchemaBroken(table=str(self._info.path), diff=f"it has no column {', '.join(gone_columns)}")
            raise InvalidRequest(what=f"columns {', '.join(missing)}", reason="the lake table has no such column")
        filtered = filter_columns(filter, {f.name: f.type for f in full_schema})
        read = dict.fromkeys((*names, *filtered, *([OFFSET] if without else [])))
        schema = pa.schema([full_schema.field(n) for n in read or (OFFSET,)])  # without a column, rows are not counted
        scan = RowScan(schema, filter, filtered, None if buckets is None else frozenset(buckets))
        return self._batches(ground, snapshot_id, scan, names, without or {})

    def _batches(
        self, ground: G, snapshot_id: SnapshotId, scan: RowScan, names: list[str], without: Mapping[Bucket, OffsetSet]
    ) -> Iterator[tuple[Bucket | None, pa.RecordBatch]]:
        for bucket, live in self.read_rows(ground, snapshot_id, scan):
            rows = live if scan.filter is None else live.filter(scan.filter)
            left_out = None if bucket is None else without.get(bucket)
            if left_out:
                rows = rows.filter(pa.array(~left_out.mask(rows.column(OFFSET).to_numpy())))
            for batch in rows.select(names).combine_chunks().to_batches():
                yield bucket, batch


class PositionReader(ScanReader[G]):
    def __init__(self, table: PositionTable[G]) -> None:
        super().__init__(table)
        self._files = table.files

    def files(self, snapshot_id: SnapshotId, bucket: Bucket | None = None) -> Sequence[LakeFile]:
        ground = self._log.load()
        there = self._files.at(ground, self._log.get(ground, snapshot_id).snapshot_id)
        return [there.describe(f) for f in there.files if bucket is None or there.bucket(f) == bucket]

    def row_schema(self, ground: G) -> pa.Schema:
        return self._files.schema(ground)

    def read_rows(self, ground: G, snapshot_id: SnapshotId, scan: RowScan) -> Iterator[tuple[Bucket | None, pa.Table]]:
        snapshot_files = self._files.at(ground, snapshot_id)
        chosen = [f for f in snapshot_files.files if scan.has(snapshot_files.bucket(f))]
        if scan.filter is not None:
            filtered = pa.schema([scan.schema.field(n) for n in scan.filtered])
            chosen = list(snapshot_files.prune(chosen, scan.filter, filtered))
        by_bucket: dict[Bucket | None, list[Any]] = {}
        for file in chosen:
            by_bucket.setdefault(snapshot_files.bucket(file), []).append(file)
        for bucket, files in by_bucket.items():
            yield from ((bucket, rows) for rows in snapshot_files.read(files, scan.schema))

    def deleted_rows(self, file: LakeFile) -> Offsets:
        return self._files.deleted_rows(file).values

    def row_offsets(self, file: LakeFile) -> Offsets:
        return self._files.row_offsets(file)

    def deleted_offsets(self, file: LakeFile) -> OffsetSet:
        positions = self._files.deleted_rows(file)
        return OffsetSet(self.row_offsets(file)[positions.values]) if positions else positions

    def totals(self) -> LakeTotals:
        ground = self._log.load()
        there = self._files.at(ground)
        return LakeTotals(
            data_files=len(there.files),
            delete_files=there.delete_files(),
            rows=sum(map(there.live_rows, there.files)),
            bytes=sum(map(there.size, there.files)),
            snapshots=sum(1 for _ in self._log.newest_first(ground)),
        )
