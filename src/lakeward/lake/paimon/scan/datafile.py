# SPDX-License-Identifier: Apache-2.0
"""Writes data files outside rounds: rows are complete, with Paimon's own columns."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pypaimon.schema.data_types import PyarrowFieldParser
from pypaimon.table.row.generic_row import GenericRow
from pypaimon.write.writer.append_only_data_writer import AppendOnlyDataWriter

from lakeward.lake.core.columns import fill_address
from lakeward.lake.encoding import gzip_level, settled
from lakeward.lake.paimon.meta.layout import is_clean
from lakeward.lake.paimon.meta.manifests import Entry, load_dead, without_dead
from lakeward.lake.tablefiles import plain_path, sync
from lakeward.model import LAKE_FIELDS, OFFSET, cast_values

SEQUENCE, KIND = "_SEQUENCE_NUMBER", "_VALUE_KIND"
_FILE = "_FILE"
_LIVE_KINDS = pa.array([0, 2], pa.int8())
"""+I and +U."""

Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]


def merge_by_key(
    files: Sequence[Iterator[pa.Table]], keys: Sequence[str], *, is_by_offset: bool = True
) -> Iterator[pa.Table]:
    """Merges sorted rows by key, each key once; deletes are included."""
    order = [(name, "ascending") for name in (*keys, *((OFFSET,) if is_by_offset else ()), SEQUENCE)]
    going, held = dict(enumerate(files)), list[pa.Table]()
    hungry = set(going)
    while True:
        for number in sorted(hungry):
            part = next(going[number], None)
            if part is None:
                del going[number]
            else:
                held.append(part.append_column(_FILE, pa.array(np.full(part.num_rows, number, np.int32))))
        if not held:
            return
        rows = pa.concat_tables(held).combine_chunks().sort_by(order)
        last = _last_of_key(rows, keys)
        source = rows.column(_FILE).to_numpy()
        stop = _complete(source, going)
        yield rows.slice(0, stop).filter(pa.array(last[:stop])).drop_columns([_FILE])
        held = [rows.slice(stop)] if stop < rows.num_rows else []
        hungry = set(going) - set(source[stop:].tolist())


def without_deletes(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.is_in(rows.column(KIND), _LIVE_KINDS))


def count_deletes(rows: pa.Table) -> int:
    live: int = pc.sum(pc.is_in(rows.column(KIND), _LIVE_KINDS)).as_py() or 0
    return int(rows.num_rows) - live


def _complete(source: np.ndarray[Any, Any], going: dict[int, Iterator[pa.Table]]) -> int:
    """Returns how many rows are final: no later row can precede them."""
    return min((int(np.flatnonzero(source == number)[-1]) + 1 for number in going), default=len(source))


def _last_of_key(rows: pa.Table, keys: Sequence[str]) -> Flags:
    same = np.ones(max(0, rows.num_rows - 1), np.bool_)
    for name in keys:
        column = rows.column(name).combine_chunks()
        same &= pc.equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy(zero_copy_only=False)
    return np.append(~same, True)


HELD_ROWS = 1 << 19
"""The most rows of all files being merged: wide rows of a kilobyte are half a gigabyte."""

_LEAST_ROWS = 1 << 10
_GROUP_ROWS = 1 << 17
"""Rows of a row group except the last: each row group is one more batch for the native reader, 2 ms each."""

_SMALL_BYTES = 1 << 20
"""Files below this size are decoded without threads, which would take a third longer."""

_OWN = (pa.field(SEQUENCE, pa.int64(), nullable=False), pa.field(KIND, pa.int8(), nullable=False))
_FIELD_ID = b"PARQUET:field_id"
_FROM_COMPACTION = 1


def file_schema(lake_table: Any) -> pa.Schema:
    """Current schema of a file, as the native writer writes it: without copies of the key columns."""
    fields = lake_table.table_schema.fields
    schema = PyarrowFieldParser.from_paimon_schema(fields)
    ids = [f.with_metadata({_FIELD_ID: str(field.id)}) for f, field in zip(schema, fields, strict=True)]
    return pa.schema([*(_OWN if lake_table.table_schema.primary_keys else ()), *ids])


def read_schema(lake_table: Any) -> pa.Schema:
    """Schema for reading a file: with the system columns, of a clean table as well."""
    made_up = [f.with_nullable(True) for f in LAKE_FIELDS] if is_clean(lake_table) else []
    return pa.schema([*file_schema(lake_table), *made_up])


def read_file(lake_table: Any, entry: Entry, schema: pa.Schema, files: int) -> Iterator[pa.Table]:
    """Reads a file by field ids: a column that the file does not have is null. `files`: how many are read at the same
    time."""
    rows, start, dead = max(_LEAST_ROWS, HELD_ROWS // files), 0, load_dead(lake_table, entry.vector)
    with lake_table.file_io.new_input_stream(entry.path) as source, pq.ParquetFile(source) as file:
        file_names = _names_in(file.schema_arrow, lake_table, entry, schema)
        columns, is_large = list(file_names.values()), entry.file.file_size > _SMALL_BYTES
        for batch in file.iter_batches(rows, columns=columns, use_threads=is_large):
            arrays = [
                cast_values(batch.column(file_names[f.name]), f.type)
                if f.name in file_names
                else pa.nulls(batch.num_rows, f.type)
                for f in schema
            ]
            table = pa.Table.from_arrays(arrays, schema=schema)
            if entry.is_clean:
                table = fill_address(table, entry.bucket, entry.first_offset, start)
            yield without_dead(table, dead, start)
            start += batch.num_rows


def _names_in(stored: pa.Schema, lake_table: Any, entry: Entry, schema: pa.Schema) -> dict[str, str]:
    """Column name -> its name in the file, for columns that it has. Paimon's own columns have no ids."""
    ids = {f.metadata[_FIELD_ID]: f.name for f in stored if _FIELD_ID in (f.metadata or {})}
    if not ids and int(entry.file.schema_id) != int(lake_table.table_schema.id):  # then it has the names of its schema
        then = lake_table.schema_manager.get_schema(int(entry.file.schema_id))
        ids = {str(f.id).encode(): f.name for f in then.fields}
    field_ids = {f.name: (f.metadata or {}).get(_FIELD_ID) for f in schema}
    names = {name: name if not ids or key is None else ids.get(key, "") for name, key in field_ids.items()}
    return {name: there for name, there in names.items() if there in stored.names}


class RewrittenFile:
    """A file that is being written, opened with its first rows."""

    def __init__(self, lake_table: Any, partition: tuple[Any, ...], bucket: int) -> None:
        self._table, self._schema = lake_table, file_schema(lake_table)
        self._kit = AppendOnlyDataWriter(lake_table, partition, bucket, 0, lake_table.options)
        self._name = f"{lake_table.options.data_file_prefix()}{uuid.uuid4()}-0.parquet"
        self._path = plain_path(self._kit._generate_file_path(self._name))
        self._keys = list(lake_table.trimmed_primary_keys) if lake_table.table_schema.primary_keys else []
        self._out: Any = None
        self._parquet: pq.ParquetWriter | None = None
        self._held: list[pa.Table] = []
        self._stats: dict[str, dict[str, Any]] = {}
        self._first: list[Any] = []
        self._last: list[Any] = []
        self._sequences = (2**63 - 1, -1)
        self.rows = self._deletes = 0

    def write(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        rows = settled(rows.combine_chunks())
        if self._parquet is None:
            options = self._table.options
            compression = options.file_compression().lower()
            level = options.file_compression_zstd_level() if compression == "zstd" else gzip_level(compression)
            self._out = self._table.file_io.new_output_stream(self._path)
            self._parquet = pq.ParquetWriter(self._out, self._schema, compression=compression, compression_level=level)
            self._first = [rows.column(k)[0].as_py() for k in self._keys]
        self._held.append(rows)
        if sum(r.num_rows for r in self._held) >= _GROUP_ROWS:
            self._flush()
        self._last = [rows.column(k)[-1].as_py() for k in self._keys]
        for field in self._table.table_schema.fields:
            more = self._kit._get_column_stats(rows, field.name)
            self._stats[field.name] = _joined(self._stats.get(field.name), more)
        if self._keys:
            low, high = pc.min_max(rows.column(SEQUENCE)).as_py().values()
            self._sequences = (min(self._sequences[0], low), max(self._sequences[1], high))
            self._deletes += count_deletes(rows)
        self.rows += rows.num_rows

    def close(self, level: int, sequences: tuple[int, int]) -> Any | None:
        """Closes the file; returns pypaimon's description of it, None if it has no rows. `sequences`: for a log table's
        file."""
        if self._parquet is None:
            return None
        self._flush()
        self._parquet.close()
        self._out.close()
        sync([self._path])
        keys, kit = self._table.trimmed_primary_keys_fields if self._keys else [], self._kit
        low, high = self._sequences if self._keys else sequences
        file = kit._create_data_file_meta(
            self._name,
            self._path,
            self.rows,
            GenericRow(self._first, keys),
            GenericRow(self._last, keys),
            kit._collect_value_stats(None, keys, self._stats),
            kit._collect_value_stats(None, self._table.table_schema.fields, self._stats),
            low,
            high,
        )
        return dataclasses.replace(
            file, level=level, file_source=_FROM_COMPACTION, delete_row_count=self._deletes, value_stats_cols=None
        )

    def _flush(self) -> None:
        if self._held and self._parquet is not None:
            self._parquet.write_table(pa.concat_tables(self._held))
        self._held = []

    def abort(self) -> None:
        """Closes the handle; the file stays for orphan removal."""
        if self._out is not None:
            self._out.close()


def _joined(before: dict[str, Any] | None, more: dict[str, Any]) -> dict[str, Any]:
    if before is None:
        return more
    lows = [s["min_values"] for s in (before, more) if s["min_values"] is not None]
    highs = [s["max_values"] for s in (before, more) if s["max_values"] is not None]
    return {
        "min_values": min(lows, default=None),
        "max_values": max(highs, default=None),
        "null_counts": before["null_counts"] + more["null_counts"],
    }
