# SPDX-License-Identifier: Apache-2.0
"""Reads one Delta table: its base, snapshots, files and live rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import InvalidRequest
from lakeward.lake.delta.commit.reconcile import DeltaGround, describe, load_base
from lakeward.lake.delta.meta.actions import AddFile, DeltaTableState
from lakeward.lake.delta.meta.columns import parse_schema_string, table_schema
from lakeward.lake.delta.meta.described import add_of, deletes_of
from lakeward.lake.delta.meta.log import DeltaLog, Listing
from lakeward.lake.delta.meta.vector import vector_path
from lakeward.lake.delta.scan.prune import prune
from lakeward.lake.delta.scan.rows import DeltaFileRows
from lakeward.lake.filtercolumns import filter_columns
from lakeward.model.bucket import Bucket
from lakeward.model.ids import SnapshotId
from lakeward.model.offsetset import Offsets, OffsetSet
from lakeward.model.round import LakeBase
from lakeward.model.systemcolumns import LAKE_NAMES
from lakeward.model.table import TableInfo
from lakeward.spi.lake import LakeFile, LakeReader, LakeSnapshot, LakeTotals
from lakeward.spi.snapshotkeys import decode_offsets


class DeltaLakeReader(LakeReader):
    def __init__(self, log: DeltaLog, table: TableInfo) -> None:
        self._log, self._info = log, table

    def load_base(self) -> LakeBase:
        return load_base(self._log, self._info.table_id, DeltaGround.load(self._log))

    def load_base_as_is(self) -> LakeBase:
        return load_base(self._log, self._info.table_id, DeltaGround.load(self._log), as_is=True)

    def snapshots(self) -> Sequence[LakeSnapshot]:
        return [describe(e, self._log.table) for e in self._log.snapshots()]

    def load_snapshot(self, snapshot_id: SnapshotId | None = None) -> LakeSnapshot | None:
        ground = DeltaGround.load(self._log)
        if snapshot_id is None and ground.head is None:
            return None
        state = ground.state if snapshot_id is None else self._load(snapshot_id, ground.listing)
        entry = ground.head if snapshot_id is None else self._log.entry(int(snapshot_id))
        assert entry is not None
        keys = state.keys
        offsets = decode_offsets(keys, self._log.table, entry.snapshot_id) if keys else None
        return replace(describe(entry, self._log.table), offsets=offsets)

    def files(self, snapshot_id: SnapshotId, bucket: Bucket | None = None) -> Sequence[LakeFile]:
        state = self._load(snapshot_id)
        rows = self._rows(state)
        keys = state.partition_keys
        return [
            self._describe(f, rows, keys) for f in state.files.values() if bucket is None or f.bucket(keys) == bucket
        ]

    def scan(
        self,
        snapshot_id: SnapshotId,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        buckets: Iterable[Bucket] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        state = self._load(snapshot_id)
        schema = _schema_of(self._log.load())
        names = list(columns) if columns is not None else [n for n in schema.names if n not in LAKE_NAMES]
        if missing := [n for n in names if n not in schema.names]:
            raise InvalidRequest(what=f"columns {', '.join(missing)}", reason="the lake table has none of that name")
        wanted = None if buckets is None else set(buckets)
        chosen = [f for f in state.files.values() if wanted is None or f.bucket(state.partition_keys) in wanted]
        asked = filter_columns(filter, {f.name: f.type for f in schema})
        if filter is not None:
            chosen = prune(chosen, filter, pa.schema([schema.field(n) for n in asked]))
        read = list(dict.fromkeys((*names, *asked)))
        rows = DeltaFileRows(self._log.files, self._log.root, self._log.table, schema)
        return self._batches(rows, chosen, read, names, filter)

    def _batches(
        self,
        rows: DeltaFileRows,
        files: Sequence[AddFile],
        read: list[str],
        names: list[str],
        filter: pc.Expression | None,
    ) -> Iterator[pa.RecordBatch]:
        for file in files:
            for _, live in rows.live(file, read):
                table = live if filter is None else live.filter(filter)
                yield from table.select(names).combine_chunks().to_batches()

    def deleted_rows(self, file: LakeFile) -> Offsets:
        return self._deleted(file)[1].values

    def deleted_offsets(self, file: LakeFile) -> OffsetSet | None:
        add, positions = self._deleted(file)
        rows = DeltaFileRows(self._log.files, self._log.root, self._log.table, pa.schema([]))
        return OffsetSet(rows.offsets(add)[positions.values]) if positions else OffsetSet()

    def totals(self) -> LakeTotals:
        listing = self._log.listing()
        state = self._log.load(listing=listing)
        rows, files = self._rows(state), state.files.values()
        vectors = {vector_path(self._log.root, f.vector) for f in files if f.vector} - {None}
        return LakeTotals(
            data_files=len(files),
            delete_files=len(vectors),
            rows=sum(rows.count(f) for f in files),
            bytes=sum(f.size_bytes for f in files),
            snapshots=len(self._log.snapshots(listing)),
        )

    def _load(self, snapshot_id: SnapshotId, listing: Listing | None = None) -> DeltaTableState:
        """Raises `SnapshotGone`."""
        listing = listing or self._log.listing()
        if not snapshot_id.isdigit() or int(snapshot_id) in self._log.load(listing=listing).expired:
            raise self._log.gone(snapshot_id)
        return self._log.load(int(snapshot_id), listing)

    def _rows(self, state: DeltaTableState) -> DeltaFileRows:
        return DeltaFileRows(self._log.files, self._log.root, self._log.table, _schema_of(state))

    def _deleted(self, file: LakeFile) -> tuple[AddFile, OffsetSet]:
        add = add_of(file)
        return add, DeltaFileRows(self._log.files, self._log.root, self._log.table, pa.schema([])).deleted(add)

    def _describe(self, file: AddFile, rows: DeltaFileRows, keys: Sequence[str]) -> LakeFile:
        return LakeFile(
            path=file.location(self._log.root),
            bucket=file.bucket(keys),
            record_count=rows.count(file) + file.deleted,
            size_bytes=file.size_bytes,
            offsets=file.offsets,
            sequence=file.since,
            deletes=deletes_of(file, self._log.root),
            partition=file.partition(keys),
            is_reader_needed=not file.is_whole,
        )


def _schema_of(state: DeltaTableState) -> pa.Schema:
    return table_schema(parse_schema_string(state.metadata["schemaString"]))
