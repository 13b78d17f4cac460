# SPDX-License-Identifier: Apache-2.0
"""Stored batches as the Arrow batches that readers get: columns by the reader's schema, then the system columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lakeward.errors import CorruptBatch, InvalidRequest, SchemaChanged
from lakeward.hot.embedded.log.stored import StoredBatch
from lakeward.hot.logbatch.codec import decode_change_types, decode_records
from lakeward.hot.logbatch.header import LogBatchHeader
from lakeward.model import (
    PREV_OFFSET,
    PREV_OFFSET_FIELD,
    TIMESTAMP_COLUMN_TYPE,
    ChangeType,
    Column,
    Schema,
    fit_column,
    log_fields,
    missing_values,
    to_arrow_schema,
)

READ_ROWS = 1 << 17
"""Rows of a stored batch that are read at once: the system columns of a record take 32 bytes, so 4 MB. Batches
from before rows per put were limited may hold 10^8 rows in 16 MB."""


class RowShape:
    """One table's schemas, old and new. Growing it is atomic for readers: a schema is in the map before a batch names
    it.
    """

    def __init__(self, table: str, is_pk: bool, schemas: Sequence[Schema]) -> None:
        self.table, self.is_pk = table, is_pk
        self._stored: dict[int, pa.Schema] = {}
        self._places: dict[int, dict[int, tuple[int, Column]]] = {}
        for schema in schemas:
            self.add(schema)

    def add(self, schema: Schema) -> None:
        places = {column.column_id: (place, column) for place, column in enumerate(schema.columns)}
        self._places = {**self._places, schema.schema_id: places}
        self._stored = {**self._stored, schema.schema_id: self._as_stored(schema)}
        self.newest = schema

    def stored(self, schema_id: int) -> pa.Schema:
        """Schema of a batch on disk: the user's columns and, on PK tables, `__prev_offset` last."""
        return self._stored[schema_id]

    def places(self, schema_id: int) -> dict[int, tuple[int, Column]]:
        """Column id -> its place in batches of that schema, and the column as it was there."""
        return self._places[schema_id]

    def _as_stored(self, schema: Schema) -> pa.Schema:
        arrow = to_arrow_schema(schema)
        return arrow.append(PREV_OFFSET_FIELD) if self.is_pk else arrow

    def reader(self, planned: Schema, columns: Sequence[str] | None = None) -> RowReader:
        return RowReader(self, planned, columns)


class RowReader:
    """Shapes the batches of one read. Raises `InvalidRequest` for a column that the reader's schema does not have."""

    def __init__(self, shape: RowShape, planned: Schema, columns: Sequence[str] | None) -> None:
        self._shape, self._planned = shape, planned
        arrow = to_arrow_schema(planned)
        fields = dict(zip(arrow.names, arrow, strict=True))
        names = arrow.names if columns is None else list(columns)
        if unknown := [n for n in names if n not in fields]:
            raise InvalidRequest(
                what=f"columns of {shape.table}",
                reason=f"no column {', '.join(unknown)}; there are {', '.join(arrow.names)}",
            )
        self._fields = [fields[n] for n in names]
        self._columns = [planned.column(n) for n in names]
        self.schema = pa.schema([*self._fields, *log_fields(is_pk=shape.is_pk)])

    def shape(self, stored: StoredBatch, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """The records of a stored batch with offsets in `[start, stop)`, a huge one in slices. Raises `SchemaChanged`,
        `CorruptBatch`."""
        header = stored.header
        low, high = max(start - header.base_offset, 0), min(stop - header.base_offset, header.record_count)
        rows, kinds = self._decode(stored), decode_change_types(header, stored.data)
        places = self._shape.places(header.schema_id)
        while low < high:
            stop_at = _slice_end(kinds, low, high)
            part = rows if (low, stop_at) == (0, rows.num_rows) else rows.slice(low, stop_at - low)
            arrays = [
                _fitted(part, places[c.column_id], c) if c.column_id in places else missing_values(f, part.num_rows)
                for c, f in zip(self._columns, self._fields, strict=True)
            ]
            last = [part.column(PREV_OFFSET)] if self._shape.is_pk else []
            system = _system_columns(header, kinds, low, stop_at)
            yield pa.RecordBatch.from_arrays([*arrays, *system, *last], schema=self.schema)
            low = stop_at

    def _decode(self, stored: StoredBatch) -> pa.RecordBatch:
        header = stored.header
        if header.schema_id > self._planned.schema_id:
            raise SchemaChanged(
                table=self._shape.table,
                offset=header.base_offset,
                batch_schema=header.schema_id,
                planned_schema=self._planned.schema_id,
            )
        try:
            schema = self._shape.stored(header.schema_id)
        except KeyError:
            where = f"table {self._shape.table}, offset {header.base_offset}"
            raise CorruptBatch(
                where=where, position=stored.position, reason=f"schema {header.schema_id} is not known"
            ) from None
        return decode_records(header, stored.data, schema)


def _fitted(rows: pa.RecordBatch, stored: tuple[int, Column], column: Column) -> pa.Array:
    return fit_column(rows.column(stored[0]), stored[1], column)


def _slice_end(kinds: pa.Buffer | None, low: int, high: int) -> int:
    """Where a slice from `low` on ends: an update's two records stay together, so that no reader stops between them."""
    end = min(low + READ_ROWS, high)
    return end + 1 if kinds is not None and end < high and kinds[end - 1] == ChangeType.UPDATE_BEFORE else end


def _system_columns(header: LogBatchHeader, kinds: pa.Buffer | None, low: int, high: int) -> list[pa.Array]:
    count = high - low
    offsets = np.arange(header.base_offset + low, header.base_offset + high, dtype=np.int64)
    times = np.full(count, header.timestamp_ms, dtype=np.int64)
    if kinds is None:
        kinds, low = pa.py_buffer(np.zeros(count, dtype=np.int8)), 0
    return [
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(offsets)]),
        pa.Array.from_buffers(TIMESTAMP_COLUMN_TYPE, count, [None, pa.py_buffer(times)]),
        pa.Array.from_buffers(pa.int8(), count, [None, kinds], offset=low),
    ]
