# SPDX-License-Identifier: Apache-2.0
"""A hot store over scripted logs: the smallest thing that keeps the hot store contract, for tests without a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakeward.errors import OffsetOutOfRange, SchemaChanged, TableNotFound
from lakeward.model import (
    OFFSET,
    SNAPSHOT_FIELDS,
    SYSTEM_COLUMNS,
    TIMESTAMP,
    Bucket,
    Column,
    TableInfo,
    TablePath,
    to_arrow_schema,
)
from lakeward.spi import HotStore, KvSnapshot, LogBounds
from lakeward_testing.scripted_log import FIRST_AT_MS, Row, ScriptedLog


@dataclass
class _Stored:
    """One table: its log, and per bucket the batches as (start, stop, schema id)."""

    log: ScriptedLog
    batches: dict[Bucket, list[tuple[int, int, int]]] = field(default_factory=dict)
    starts: dict[Bucket, int] = field(default_factory=dict)


class ScriptedHotStore(HotStore):
    has_prev_offset = True

    def __init__(self) -> None:
        self._tables: dict[TablePath, _Stored] = {}

    # ---- what a test does --------------------------------------------------------------------------------------------
    def create(self, table: TableInfo) -> ScriptedLog:
        self._tables[table.path] = _Stored(ScriptedLog(table))
        return self._tables[table.path].log

    def write(self, table: TableInfo, bucket: Bucket, rows: Sequence[Row]) -> None:
        stored = self._stored(table.path)
        start = stored.log.end(bucket)
        stop = stored.log.upsert(bucket, *rows) if table.is_pk else stored.log.append(bucket, *rows)
        self._note(stored, bucket, start, stop)

    def delete(self, table: TableInfo, bucket: Bucket, keys: Sequence[Row]) -> None:
        stored = self._stored(table.path)
        start = stored.log.end(bucket)
        self._note(stored, bucket, start, stored.log.delete(bucket, *keys))

    def add_column(self, table: TableInfo, column: Column) -> TableInfo:
        log = self._stored(table.path).log
        descriptor = replace(table.descriptor, schema=table.schema.with_added([column]))
        log.table = table.with_descriptor(descriptor)
        return log.table

    def make_gap(self, table: TableInfo, bucket: Bucket, end: int) -> None:
        log = self._stored(table.path).log
        log.skip(bucket, end - log.end(bucket))

    def expire(self, table: TableInfo, bucket: Bucket, start: int) -> None:
        """The log no longer says that it holds what is below `start`."""
        self._stored(table.path).starts[bucket] = start

    # ---- HotStore ----------------------------------------------------------------------------------------------------
    def load_table(self, path: TablePath) -> TableInfo:
        return self._stored(path).log.table

    def list_tables(self) -> Sequence[TablePath]:
        return list(self._tables)

    def freeze(self, table: TableInfo) -> Mapping[Bucket, LogBounds]:
        stored = self._stored(table.path)
        log = stored.log
        fixed = [] if table.descriptor.is_partitioned else [Bucket("", n) for n in range(table.descriptor.bucket_count)]
        return {b: self._bounds(stored, b) for b in sorted({*fixed, *log.ends()})}

    def read_log(
        self, table: TableInfo, bucket: Bucket, start: int, stop: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        stored = self._stored(table.path)
        end = stored.log.end(bucket)
        if start < stop and (start < 0 or stop > end):
            offset = start if start < 0 or start >= end else stop
            raise OffsetOutOfRange(table=str(table.path), bucket=str(bucket), offset=offset, start=0, end=end)
        for first, last, schema_id in stored.batches.get(bucket, []):
            if max(first, start) >= min(last, stop):
                continue
            if schema_id > table.schema.schema_id:
                planned = table.schema.schema_id
                raise SchemaChanged(table=str(table.path), offset=first, batch_schema=schema_id, planned_schema=planned)
            yield _project(stored.log.batch(bucket, max(first, start), min(last, stop)), table, columns)

    def offset_at(self, table: TableInfo, bucket: Bucket, at_ms: int) -> int:
        return min(max(0, at_ms - FIRST_AT_MS), self._stored(table.path).log.end(bucket))

    def take_snapshot(self, table: TableInfo, bucket: Bucket, holder: str) -> KvSnapshot | None:
        end = self._stored(table.path).log.end(bucket)
        return KvSnapshot(bucket=bucket, snapshot_id=f"at-{end}", log_offset=end) if end else None

    def read_snapshot(
        self, table: TableInfo, snapshot: KvSnapshot, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        live = self._stored(table.path).log.expected({snapshot.bucket: snapshot.log_offset})
        rows = [{**row, OFFSET: offset, TIMESTAMP: FIRST_AT_MS + offset} for _, offset, row in live]
        yield _project(
            pa.RecordBatch.from_pylist(rows, schema=pa.schema([*to_arrow_schema(table.schema), *SNAPSHOT_FIELDS])),
            table,
            columns,
        )

    def release_snapshots(self, table: TableInfo, holder: str) -> None:
        """Scripted logs keep everything."""

    def close(self) -> None:
        """Nothing is open."""

    def _stored(self, path: TablePath) -> _Stored:
        if path not in self._tables:
            raise TableNotFound(table=str(path))
        return self._tables[path]

    def _note(self, stored: _Stored, bucket: Bucket, start: int, stop: int) -> None:
        if stop > start:
            stored.batches.setdefault(bucket, []).append((start, stop, stored.log.table.schema.schema_id))

    def _bounds(self, stored: _Stored, bucket: Bucket) -> LogBounds:
        end, start = stored.log.end(bucket), stored.starts.get(bucket, 0)
        return LogBounds(start=start, end=end, end_at_ms=FIRST_AT_MS + end if end else 0, bytes_per_row=32.0)


def _project(batch: pa.RecordBatch, table: TableInfo, columns: Sequence[str] | None) -> pa.RecordBatch:
    wanted = list(table.schema.names if columns is None else columns)
    return batch.select([*wanted, *(n for n in batch.schema.names if n in SYSTEM_COLUMNS)])
