# SPDX-License-Identifier: Apache-2.0
"""Rows of data files: with the current columns, without rows that vectors delete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.lake.core.columnmap import stored_key, without_keys
from lakeward.lake.core.columns import keep_rows, parse_partition_value
from lakeward.lake.delta import lake_errors
from lakeward.lake.delta.meta.actions import AddFile
from lakeward.lake.delta.meta.vector import load_vector
from lakeward.lake.tablefiles import TableFiles
from lakeward.model import OFFSET, Offsets, OffsetSet, cast_values

BATCH_ROWS = 65_536


class DeltaFileRows:
    """Reads data files of one table. `schema`: schema of the returned rows."""

    def __init__(self, files: TableFiles, root: str, table: str, schema: pa.Schema) -> None:
        self._files, self._root, self._table, self._schema = files, root, table, schema

    def live(self, file: AddFile, names: Sequence[str]) -> Iterator[tuple[Offsets, pa.Table]]:
        """Reads live rows in the file's order, batch by batch, with their positions in the file."""
        deleted, start = self.deleted(file), 0
        requested = pa.schema([self._schema.field(n) for n in names])
        with self._open(file) as parquet:
            stored = set(parquet.schema_arrow.names)
            stored_columns = [key for key in map(stored_key, requested) if key in stored]
            for batch in parquet.iter_batches(BATCH_ROWS, columns=stored_columns, use_threads=False):
                rows = self._fit(batch, file, requested)
                positions = np.arange(start, start + batch.num_rows, dtype=np.int64)
                start += batch.num_rows
                keep = ~deleted.mask(positions) if deleted else None
                if keep is None or keep.all():
                    yield positions, rows
                else:
                    yield positions[keep], keep_rows(rows, keep)

    def deleted(self, file: AddFile) -> OffsetSet:
        if file.vector is None:
            return OffsetSet()
        with lake_errors(self._table, "read a vector of"):
            return load_vector(self._files, self._root, file.vector, self._table)

    def offsets(self, file: AddFile) -> Offsets:
        """Reads the offset of every row, deleted rows included, in the file's order."""
        with self._open(file) as parquet:
            column = parquet.read(columns=[OFFSET], use_threads=False).column(0)
        return np.asarray(column.to_numpy(), np.int64)

    def count(self, file: AddFile) -> int:
        """Reads live rows."""
        if file.records is not None:
            return file.records - file.deleted
        with self._open(file) as parquet:
            return int(parquet.metadata.num_rows) - file.deleted

    @contextmanager
    def _open(self, file: AddFile) -> Iterator[pq.ParquetFile]:
        path = file.location(self._root)
        with lake_errors(self._table, "read a file of"), self._files.open_input(path) as source:
            yield pq.ParquetFile(source, pre_buffer="://" in path)

    def _fit(self, batch: pa.RecordBatch, file: AddFile, wanted: pa.Schema) -> pa.Table:
        """Fits a batch to the schema. A column that the file does not have is null, or has the partition's value."""
        file_schema, shown = batch.schema, without_keys(wanted)
        if file.is_whole and file_schema.names == [stored_key(f) for f in wanted] and file_schema.types == wanted.types:
            return pa.Table.from_arrays(batch.columns, schema=shown)
        values: Mapping[str, str | None] = file.action.get("partitionValues") or {}
        arrays = []
        for field in wanted:
            key = stored_key(field)
            if key in file_schema.names and (file.is_whole or key not in values):
                arrays.append(cast_values(batch.column(key), field.type))
            elif key in values:
                value = parse_partition_value(values[key], field.type)
                arrays.append(pa.repeat(pa.scalar(value, field.type), batch.num_rows))
            else:
                arrays.append(pa.nulls(batch.num_rows, field.type))
        return pa.table(arrays, schema=shown)
