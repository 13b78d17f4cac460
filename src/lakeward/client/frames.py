# SPDX-License-Identifier: Apache-2.0
"""Data frames of pandas and polars: as Arrow data, their columns as a table's, and values that a frame keeps in another
type than the table does, where no bit of them is lost.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakeward.client.casts import is_text

_UTC = frozenset(("UTC", "Etc/UTC", "GMT", "Z", "+00:00", "+0000"))
_MICROSECONDS = "us"


def as_arrow(rows: Any) -> pa.Table | None:
    """None: it is no Arrow data, nor a frame."""
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, pa.RecordBatchReader):
        return rows.read_all()
    if is_lazy(rows):
        rows = rows.collect()
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(rows).read_all()
    if hasattr(rows, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(rows)])
    return None


def is_lazy(rows: Any) -> bool:
    """A LazyFrame of polars, which is not loaded for the question."""
    return type(rows).__module__.partition(".")[0] == "polars" and hasattr(rows, "collect")


def schema_of(frame: Any) -> pa.Schema | None:
    """Schema of a frame or of Arrow data; None: it is neither. Unused nanoseconds become microseconds: pandas stored
    every timestamp with nanoseconds for years, and lakes have none."""
    rows = as_arrow(frame.head(0) if is_lazy(frame) else frame)
    if rows is None:
        return None
    columns = zip(rows.column_names, rows.columns, strict=True)
    return pa.schema([pa.field(name, _kind(column)) for name, column in columns])


def _kind(column: pa.ChunkedArray) -> pa.DataType:
    kind = column.type.value_type if pt.is_dictionary(column.type) else column.type
    if pt.is_timestamp(kind) and kind.unit == "ns":
        coarser = pa.timestamp(_MICROSECONDS, tz=kind.tz)
        try:
            column.cast(coarser)
        except pa.ArrowInvalid:
            return kind
        return coarser
    return kind


def is_exact_stand_in(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Types that frames use for lack of others: a float for an integer with gaps, text and UTC for moments. Each value
    is checked when it is cast."""
    if pt.is_floating(given) and pt.is_integer(wanted):
        return True
    if is_text(given):
        return bool(pt.is_timestamp(wanted) or pt.is_date32(wanted))
    is_moment = pt.is_timestamp(given) and pt.is_timestamp(wanted)
    return bool(is_moment and wanted.tz is None and given.tz in _UTC)


def plain(given: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Converts values to a type that a checked cast accepts. NaN is how pandas marks a gap among numbers."""
    if pt.is_floating(given.type) and pt.is_integer(wanted):
        return pc.if_else(pc.is_nan(given), pa.scalar(None, given.type), given)
    if pt.is_timestamp(given.type) and pt.is_timestamp(wanted) and wanted.tz is None and given.type.tz is not None:
        return pc.local_timestamp(given)
    return given.cast(pa.string()) if is_text(given.type) else given
