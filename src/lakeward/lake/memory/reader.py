# SPDX-License-Identifier: Apache-2.0
"""Reads one memory table: its base, snapshots, files and live rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.lake.memory.reconcile import ancestors, describe, load_base
from lakeward.lake.memory.rows import count_live, data_files, deletes_for, live_rows
from lakeward.lake.memory.table import DataFile, KeyDeletes, MemoryLake, MemoryTable, PositionDeletes, Snapshot
from lakeward.model.arrow import to_arrow_schema
from lakeward.model.bucket import Bucket, partition_values
from lakeward.model.ids import SnapshotId
from lakeward.model.offsets import OffsetRange
from lakeward.model.offsetset import Offsets, OffsetSet
from lakeward.model.round import LakeBase
from lakeward.model.schema import OFFSET
from lakeward.model.systemcolumns import LAKE_FIELDS
from lakeward.model.table import TableInfo
from lakeward.spi.lake import OFFSETS_KEY, LakeDelete, LakeFile, LakeReader, LakeSnapshot, LakeTotals


class MemoryLakeReader(LakeReader):
    def __init__(self, lake: MemoryLake, table: TableInfo) -> None:
        self._lake, self._info = lake, table
        lake.table(table.path)

    def load_base(self) -> LakeBase:
        with self._lake.lock:
            return load_base(self._table(), self._info.table_id)

    def load_base_as_is(self) -> LakeBase:
        with self._lake.lock:
            return load_base(self._table(), self._info.table_id, as_is=True)

    def snapshots(self) -> Sequence[LakeSnapshot]:
        with self._lake.lock:
            table = self._table()
            return [describe(table, s) for _, s in sorted(table.snapshots.items())]

    def load_snapshot(self, snapshot_id: SnapshotId | None = None) -> LakeSnapshot | None:
        with self._lake.lock:
            table = self._table()
            if snapshot_id is None and table.head is None:
                return None
            snapshot = table.snapshot(snapshot_id if snapshot_id is not None else table.head or 0)
            chain, _ = ancestors(table, snapshot.number)
            ours = next((s for s in chain if OFFSETS_KEY in s.summary), None)
            offsets = None if ours is None else describe(table, ours).offsets
            return replace(describe(table, snapshot), offsets=offsets)

    def files(self, snapshot_id: SnapshotId, bucket: Bucket | None = None) -> Sequence[LakeFile]:
        with self._lake.lock:
            table = self._table()
            snapshot = table.snapshot(snapshot_id)
            return [_describe_file(table, snapshot, f) for f in data_files(table, snapshot, bucket)]

    def scan(
        self,
        snapshot_id: SnapshotId,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        buckets: Iterable[Bucket] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        wanted = None if buckets is None else set(buckets)
        with self._lake.lock:
            table = self._table()
            snapshot = table.snapshot(snapshot_id)
            chosen = [f for f in data_files(table, snapshot) if wanted is None or f.bucket in wanted]
            tables = [live_rows(table, snapshot, f) for f in chosen]
            schema = pa.schema([*to_arrow_schema(table.columns), *LAKE_FIELDS])
            names = list(columns) if columns is not None else [c.name for c in table.columns]
        return _project(tables, schema, names, filter)

    def deleted_rows(self, file: LakeFile) -> Offsets:
        with self._lake.lock:
            named = [self._table().files[d.path] for d in file.deletes]
            parts = [d.positions.values for d in named if isinstance(d, PositionDeletes)]
            return OffsetSet(np.concatenate([np.empty(0, np.int64), *parts])).values

    def totals(self) -> LakeTotals:
        with self._lake.lock:
            table = self._table()
            if table.head is None:
                return LakeTotals(data_files=0, delete_files=0, rows=0, bytes=0, snapshots=0)
            head = table.snapshots[table.head]
            return LakeTotals(
                data_files=len(head.data),
                delete_files=len(head.deletes),
                rows=count_live(table, head),
                bytes=sum(table.files[path].size_bytes for path in (*head.data, *head.deletes)),
                snapshots=len(table.snapshots),
            )

    def _table(self) -> MemoryTable:
        return self._lake.table(self._info.path)


def _project(
    tables: Sequence[pa.Table], schema: pa.Schema, names: Sequence[str], condition: pc.Expression | None
) -> Iterator[pa.RecordBatch]:
    for rows in tables:
        fitted = _fit(rows, schema)
        chosen = (fitted if condition is None else fitted.filter(condition)).select(names)
        yield from chosen.combine_chunks().to_batches()


def _fit(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """A file's rows under today's schema: columns added since are null."""
    have = set(rows.column_names)
    columns = [rows.column(f.name).cast(f.type) if f.name in have else pa.nulls(rows.num_rows, f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _describe_file(table: MemoryTable, snapshot: Snapshot, file: DataFile) -> LakeFile:
    offsets = file.rows.column(OFFSET).to_numpy()
    return LakeFile(
        path=file.path,
        bucket=file.bucket,
        record_count=file.rows.num_rows,
        size_bytes=file.size_bytes,
        offsets=OffsetRange(int(offsets.min()), int(offsets.max()) + 1) if len(offsets) else None,
        sequence=snapshot.data[file.path],
        deletes=tuple(_describe_delete(d, sequence) for sequence, d in deletes_for(table, snapshot, file)),
        partition=dict(zip(table.partition_keys, partition_values(file.bucket.partition), strict=True)),
    )


def _describe_delete(delete: PositionDeletes | KeyDeletes, sequence: int) -> LakeDelete:
    if isinstance(delete, PositionDeletes):
        return LakeDelete(path=delete.path, content="positions", record_count=len(delete.positions), sequence=sequence)
    names = tuple(delete.keys.column_names)
    return LakeDelete(
        path=delete.path,
        content="equality",
        record_count=delete.keys.num_rows,
        sequence=sequence,
        equality_columns=names,
    )
