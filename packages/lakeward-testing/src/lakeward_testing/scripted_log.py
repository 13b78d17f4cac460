# SPDX-License-Identifier: Apache-2.0
"""A hot store's log in a test's hands: rows in, changelog batches out, and a dict that says what the lake must hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakeward.model import (
    CHANGE_TYPE,
    OFFSET,
    PREV_OFFSET,
    TIMESTAMP,
    Bucket,
    ChangeType,
    OffsetMap,
    TableInfo,
    log_fields,
    to_arrow_schema,
)

Row = dict[str, Any]
FIRST_AT_MS = 1_700_000_000_000


@dataclass(frozen=True)
class _Record:
    offset: int
    change: ChangeType
    row: Row
    prev: int | None = None


class ScriptedLog:
    """Offsets count from 0 per bucket unless `skip` leaves a gap. Time moves by one millisecond per offset."""

    def __init__(self, table: TableInfo) -> None:
        self.table = table
        self._records: dict[Bucket, list[_Record]] = {}
        self._ends: dict[Bucket, int] = {}
        self._live: dict[Bucket, dict[tuple[Any, ...], tuple[int, Row]]] = {}

    def append(self, bucket: Bucket, *rows: Row) -> int:
        """Rows of a log table. Returns the log's end."""
        for row in rows:
            self._add(bucket, ChangeType.APPEND, row)
        return self.end(bucket)

    def upsert(self, bucket: Bucket, *rows: Row) -> int:
        for row in rows:
            old = self._live.setdefault(bucket, {}).get(self._key(row))
            if old is None:
                offset = self._add(bucket, ChangeType.INSERT, row)
            else:
                self._add(bucket, ChangeType.UPDATE_BEFORE, old[1], old[0])
                offset = self._add(bucket, ChangeType.UPDATE_AFTER, row, old[0])
            self._live[bucket][self._key(row)] = (offset, row)
        return self.end(bucket)

    def delete(self, bucket: Bucket, *keys: Row) -> int:
        """Deletes by key; a key that is not there leaves no record."""
        for key in keys:
            old = self._live.setdefault(bucket, {}).pop(self._key(key), None)
            if old is not None:
                self._add(bucket, ChangeType.DELETE, old[1], old[0])
        return self.end(bucket)

    def skip(self, bucket: Bucket, count: int) -> int:
        """A gap in the offsets."""
        self._ends[bucket] = self.end(bucket) + count
        return self.end(bucket)

    def end(self, bucket: Bucket) -> int:
        return self._ends.get(bucket, 0)

    def ends(self) -> OffsetMap:
        return OffsetMap(self._ends)

    def batch(self, bucket: Bucket, start: int, stop: int) -> pa.RecordBatch:
        """Records `[start, stop)` as a hot store may give them: the user's columns, then the system's. Below a null,
        everything is null, whatever the types say."""
        records = [r for r in self._records.get(bucket, []) if start <= r.offset < stop]
        schema = pa.schema([*to_arrow_schema(self.table.schema), *log_fields(is_pk=self.table.is_pk)])
        rows = [
            {
                **r.row,
                OFFSET: r.offset,
                TIMESTAMP: FIRST_AT_MS + r.offset,
                CHANGE_TYPE: int(r.change),
                PREV_OFFSET: r.prev,
            }
            for r in records
        ]
        batch = pa.RecordBatch.from_pylist(rows, schema=schema)
        return pa.RecordBatch.from_arrays([_with_hidden_nulls(c) for c in batch.columns], schema=schema)

    def expected(self, offsets: Mapping[Bucket, int]) -> list[tuple[Bucket, int, Row]]:
        """The oracle: (bucket, offset, row) of every row that the lake must show at these offsets, folded by key."""
        rows = []
        for bucket, stop in offsets.items():
            live: dict[object, tuple[int, Row]] = {}
            for record in self._records.get(bucket, []):
                if record.offset >= stop:
                    break
                key = self._key(record.row) if self.table.is_pk else record.offset
                if record.change is ChangeType.DELETE:
                    del live[key]
                elif record.change is not ChangeType.UPDATE_BEFORE:
                    live[key] = (record.offset, record.row)
            rows += [(bucket, offset, row) for offset, row in live.values()]
        return sorted(rows, key=lambda r: r[:2])

    def _add(self, bucket: Bucket, change: ChangeType, row: Row, prev: int | None = None) -> int:
        offset = self.end(bucket)
        self._records.setdefault(bucket, []).append(_Record(offset, change, row, prev))
        self._ends[bucket] = offset + 1
        return offset

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.table.descriptor.primary_key)


def _with_hidden_nulls(array: pa.Array) -> pa.Array:
    kind = array.type
    if not pa.types.is_struct(kind) or not array.null_count:
        return array
    children = [_with_hidden_nulls(child) for child in array.flatten()]
    # by buffers: made from arrays, a row with a null in a NOT NULL field is refused
    valid = pa.py_buffer(np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))
    return pa.Array.from_buffers(kind, len(array), [valid], children=children)
