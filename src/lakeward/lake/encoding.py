# SPDX-License-Identifier: Apache-2.0
"""Prepares rows for a lake's file: nulls in the form that files need, errors that name the row that does not fit, and
which columns get a dictionary.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeward.errors import RowNotEncoded
from lakeward.model import OFFSET, Bucket, find_nested_null, without_hidden_nulls
from lakeward.spi import WriteTask

_NOT_NULL = "it has a null where its type is NOT NULL"


@dataclass(frozen=True)
class RowEncoding:
    """Encoding of one writer's rows; the fields are named in its errors."""

    lake: str
    table: str
    bucket: Bucket

    @classmethod
    def of(cls, lake: str, task: WriteTask) -> RowEncoding:
        return cls(lake, str(task.table.path), task.split.bucket)

    def fit(self, rows: pa.Table, conform: Callable[[pa.Table], pa.Table]) -> pa.Table:
        """Returns the rows, fitted to the lake's columns by `conform`, in the form that a file needs: values below a
        null do not count as null. Raises `RowNotEncoded`."""
        with self.errors(rows):
            fitted = conform(rows)
        return settled(fitted, lambda column, row: self.error(rows, column, row, _NOT_NULL))

    @contextmanager
    def errors(self, rows: pa.Table, schema: pa.Schema | None = None) -> Iterator[None]:
        """Translates errors while these rows are written to a file with this schema: a value that Arrow or the format's
        library refuses raises `RowNotEncoded`."""
        try:
            yield
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            column, row = _find(rows, schema)
            raise self.error(rows, column, row, f"{type(error).__name__}: {str(error)[:300]}") from error

    def error(self, rows: pa.Table, column: str | None, row: int | None, reason: str) -> RowNotEncoded:
        return RowNotEncoded(
            lake=self.lake,
            table=self.table,
            column=column or "unknown",
            bucket=str(self.bucket),
            offset=_offset(rows, row),
            reason=reason,
        )


def settled(rows: pa.Table, wrong: Callable[[str, int], Exception] | None = None) -> pa.Table:
    """Returns the rows without nulls below a null parent where the type is NOT NULL, and with nested arrays that begin
    where their memory does: the native writers of pylance and pypaimon panic at a slice of an array of nested rows.
    `wrong` builds the error for another null there, from column and row; None: rows read from files of the lake have no
    such null."""
    for i, field in enumerate(rows.schema):
        if not pa.types.is_nested(field.type):
            continue
        chunks, at = [], 0
        for chunk in rows.column(i).chunks:
            if wrong is not None and (row := find_nested_null(chunk)) is not None:
                raise wrong(field.name, at + row)
            chunks.append(without_hidden_nulls(pa.concat_arrays([chunk]) if chunk.offset else chunk))
            at += len(chunk)
        rows = rows.set_column(i, field, pa.chunked_array(chunks, field.type))
    return rows


def _offset(rows: pa.Table, row: int | None) -> str:
    if OFFSET not in rows.column_names or not rows.num_rows:
        return "unknown"
    offsets = rows.column(OFFSET)
    if row is not None:
        return str(offsets[row].as_py())
    bounds = pc.min_max(offsets).as_py()
    return f"{bounds['min']} to {bounds['max']}"


def _find(rows: pa.Table, schema: pa.Schema | None) -> tuple[str | None, int | None]:
    """Finds the first column and row that Parquet refuses too; None if only the format's own library refuses them."""
    for name in rows.column_names:
        field = schema.field(name) if schema is not None and name in schema.names else None
        column = rows.select([name])
        if _is_written(column, field):
            continue
        low, high = 0, column.num_rows
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _is_written(column.slice(low, middle - low), field) else (low, middle)
        return name, low
    return None, None


def _is_written(rows: pa.Table, field: pa.Field | None) -> bool:
    try:
        pq.write_table(rows if field is None else rows.cast(pa.schema([field])), io.BytesIO())
    except (pa.ArrowException, ValueError):
        return False
    return True


_SAMPLE_ROWS = 16_384
_PAYS = 0.1
"""The largest share of distinct values in the sample for which a dictionary pays: above, its pages outgrow their limit,
and Parquet falls back to plain encoding after it has hashed every value."""


def dictionary_columns(table: pa.Table) -> list[str]:
    """Selects leaf columns for which a dictionary pays, judged by the first rows; nested leaves always have one."""
    chosen: list[str] = []
    sample = table.slice(0, _SAMPLE_ROWS)
    for field, column in zip(table.schema, sample.columns, strict=True):
        if pa.types.is_nested(field.type):
            chosen += leaf_paths(field, field.name)
        elif (
            not pa.types.is_boolean(field.type)
            and pc.count_distinct(column, mode="all").as_py() <= _PAYS * len(sample) + 1
        ):
            chosen.append(field.name)
    return chosen


def leaf_paths(field: pa.Field, path: str) -> list[str]:
    """Returns Parquet's names of the leaves below a nested field."""
    kind = field.type
    if pa.types.is_map(kind):
        key, value = kind.key_field, kind.item_field
        return [*leaf_paths(key, f"{path}.key_value.key"), *leaf_paths(value, f"{path}.key_value.value")]
    if pa.types.is_list(kind):
        return leaf_paths(kind.value_field, f"{path}.list.element")
    if pa.types.is_struct(kind):
        return [leaf for child in kind for leaf in leaf_paths(child, f"{path}.{child.name}")]
    return [path]


_SMALL_BYTES = 128 * 1024
"""Measured in Arrow. A reader sets up zstd for each column of a file, which takes longer than decoding a small one: 100
rows of ten columns are read in 0.18 ms with snappy and in 0.45 ms with zstd, which needs a quarter less space."""


def gzip_level(codec: str) -> int | None:
    """The gzip level if a table sets none. Arrow's default, 9, takes five times the CPU for 0.2 % less."""
    return 6 if codec == "gzip" else None


def choose_codec(first: pa.Table) -> str:
    """Chooses the codec. `first`: the file's first row group; one that is this small is its only one."""
    return "snappy" if first.nbytes < _SMALL_BYTES else "zstd"


_DICTIONARY_BYTES = 2 * 1024 * 1024


def parquet_options(first: pa.Table) -> dict[str, Any]:
    """Options of Arrow's writer for a file that begins with these rows."""
    return {
        "compression": choose_codec(first),
        "use_dictionary": dictionary_columns(first),
        "dictionary_pagesize_limit": _DICTIONARY_BYTES,
        "store_schema": False,  # with ARROW:schema other readers expect large_string and fail
    }
