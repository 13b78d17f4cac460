# SPDX-License-Identifier: Apache-2.0
"""Fluss's log batches as Arrow batches for a round: decoded with the schema they were written with, shaped to the
table's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakeward.hot.logbatch.codec import decode_change_types, decode_records
from lakeward.hot.logbatch.header import LogBatchHeader
from lakeward.model import (
    LOG_FIELDS,
    SNAPSHOT_FIELDS,
    TIMESTAMP_COLUMN_TYPE,
    ChangeType,
    Column,
    Schema,
    cast_values,
    to_arrow_schema,
)


def log_schema(columns: Sequence[Column]) -> pa.Schema:
    """Arrow types as Fluss writes them: as ours, but local-zone timestamps carry no zone."""
    return pa.schema([pa.field(f.name, _without_zone(f.type), f.nullable) for f in to_arrow_schema(columns)])


def _without_zone(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    if pa.types.is_list(kind):
        return pa.list_(_field_without_zone(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_field_without_zone(kind.key_field), _field_without_zone(kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([_field_without_zone(kind.field(i)) for i in range(kind.num_fields)])
    return kind


def _field_without_zone(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _without_zone(field.type), field.nullable)


class BatchShaper:
    """Makes what `read_log` gives out, for one table schema and choice of columns."""

    def __init__(self, schema: Schema, columns: Sequence[str] | None) -> None:
        names = schema.names if columns is None else tuple(columns)
        whole = to_arrow_schema(schema)
        self.fields = [whole.field(n) for n in names]

    def columns_of(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """The chosen columns; one that is newer than the rows is null. Finer times are cut off, not rounded."""
        arrays = []
        for field in self.fields:
            at = rows.schema.get_field_index(field.name)
            if at < 0:
                arrays.append(pa.nulls(rows.num_rows, field.type))
                continue
            array = rows.column(at)
            arrays.append(cast_values(array, field.type, safe=False))
        return arrays

    def log_batch(
        self, header: LogBatchHeader, data: pa.Buffer, written: pa.Schema, start: int, stop: int
    ) -> pa.RecordBatch:
        """Records of the batch within `[start, stop)`, with offset, time and change type."""
        rows = decode_records(header, data, written)
        changes = decode_change_types(header, data)
        low, high = max(0, start - header.base_offset), min(header.record_count, stop - header.base_offset)
        rows = rows.slice(low, max(0, high - low))
        count = rows.num_rows
        offsets = pa.array(np.arange(header.base_offset + low, header.base_offset + low + count, dtype=np.int64))
        kinds = (
            np.full(count, ChangeType.APPEND, np.int8)
            if changes is None
            else np.frombuffer(changes, np.int8)[low : low + count]
        )
        return self._finish(rows, offsets, header.timestamp_ms, pa.array(kinds))

    def snapshot_batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of a KV snapshot: they have no offset and no time of their own; -1 says so, as Fluss's own job writes
        it.
        """
        return self._finish(rows, pa.array(np.full(rows.num_rows, -1, np.int64)), -1, None)

    def _finish(self, rows: pa.RecordBatch, offsets: pa.Array, at_ms: int, kinds: pa.Array | None) -> pa.RecordBatch:
        times = pa.array(np.full(rows.num_rows, at_ms, np.int64)).cast(TIMESTAMP_COLUMN_TYPE)
        arrays = [*self.columns_of(rows), offsets, times, *([] if kinds is None else [kinds])]
        system = SNAPSHOT_FIELDS if kinds is None else LOG_FIELDS
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*self.fields, *system]))
