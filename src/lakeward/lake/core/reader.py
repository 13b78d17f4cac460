# SPDX-License-Identifier: Apache-2.0
"""Reads one table: its base and snapshots for every format; files and rows for those that delete by position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import InvalidRequest
from lakeward.lake.core.log import G
from lakeward.lake.core.reconcile import describe, load_base
from lakeward.lake.core.table import LakeTable, PositionTable
from lakeward.lake.satisfiable import filter_columns
from lakeward.model.bucket import Bucket
from lakeward.model.ids import SnapshotId
from lakeward.model.offsetset import Offsets, OffsetSet
from lakeward.model.round import LakeBase
from lakeward.model.schema import OFFSET
from lakeward.model.systemcolumns import LAKE_NAMES
from lakeward.spi.lake.reader import LakeReader
from lakeward.spi.lakefile import LakeFile, LakeSnapshot, LakeTotals


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


class PositionReader(CoreReader[G]):
    def __init__(self, table: PositionTable[G]) -> None:
        super().__init__(table)
        self._files = table.files

    def files(self, snapshot_id: SnapshotId, bucket: Bucket | None = None) -> Sequence[LakeFile]:
        ground = self._log.load()
        there = self._files.at(ground, self._log.get(ground, snapshot_id).snapshot_id)
        return [there.describe(f) for f in there.files if bucket is None or there.bucket(f) == bucket]

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
        there = self._files.at(ground, self._log.get(ground, snapshot_id).snapshot_id)
        schema = self._files.schema(ground)
        names = list(columns) if columns is not None else [n for n in schema.names if n not in LAKE_NAMES]
        if missing := [n for n in names if n not in schema.names]:
            raise InvalidRequest(what=f"columns {', '.join(missing)}", reason="the lake table has none of that name")
        asked = filter_columns(filter, {f.name: f.type for f in schema})
        wanted = None if buckets is None else set(buckets)
        chosen = [f for f in there.files if wanted is None or there.bucket(f) in wanted]
        if filter is not None:
            chosen = list(there.prune(chosen, filter, pa.schema([schema.field(n) for n in asked])))
        by_bucket: dict[Bucket | None, list[Any]] = {}
        for file in chosen:
            by_bucket.setdefault(there.bucket(file), []).append(file)
        return self._batches(there, by_bucket, schema, names, asked, filter, without or {})

    def _batches(
        self,
        there: Any,
        by_bucket: Mapping[Bucket | None, Sequence[Any]],
        schema: pa.Schema,
        names: Sequence[str],
        asked: Iterable[str],
        filter: pc.Expression | None,
        without: Mapping[Bucket, OffsetSet],
    ) -> Iterator[tuple[Bucket | None, pa.RecordBatch]]:
        for bucket, files in by_bucket.items():
            left_out = None if bucket is None else without.get(bucket)
            read = dict.fromkeys((*names, *asked, *([OFFSET] if left_out else [])))
            for live in there.read(files, pa.schema([schema.field(n) for n in read])):
                rows = live if filter is None else live.filter(filter)
                if left_out:
                    rows = rows.filter(pa.array(~left_out.mask(rows.column(OFFSET).to_numpy())))
                for batch in rows.select(names).combine_chunks().to_batches():
                    yield bucket, batch

    def deleted_rows(self, file: LakeFile) -> Offsets:
        return self._files.deleted_rows(file).values

    def deleted_offsets(self, file: LakeFile) -> OffsetSet | None:
        return self._files.deleted_offsets(file)

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
