# SPDX-License-Identifier: Apache-2.0
"""Writes one split: Arrow batches to data files of bounded size, with one row group in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from lakeward.lake.core.columns import SYSTEM, conform
from lakeward.lake.core.writer import CoreWriter
from lakeward.lake.iceberg.commit.resolve import conform_keys, key_schema
from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.datafile.offsetcache import encode_offsets, join_encoded, write_cache
from lakeward.lake.iceberg.datafile.parquet import FileStatistics, ParquetOptions, ParquetOutput
from lakeward.lake.iceberg.datafile.result import WriteHandle, WriteResult, WrittenFile
from lakeward.lake.iceberg.meta.failures import lake_errors
from lakeward.lake.iceberg.meta.location import data_name, keys_name
from lakeward.lake.iceberg.meta.types import address_bounds, is_clean, to_arrow_schema
from lakeward.model import OFFSET, fault_point
from lakeward.spi import WriteTask, is_of_fluss

_TARGET_BYTES = 512 * 1024 * 1024
"""Iceberg's default of `write.target-file-size-bytes`."""

_KEY_FILE_ROWS = 5_000_000
"""The most keys held in memory."""


class IcebergLakeWriter(CoreWriter[ParquetOutput]):
    def __init__(self, connection: IcebergConnection, task: WriteTask, schema: Schema | None = None) -> None:
        """`schema`: the files' schema, if they have columns that the table lacks."""
        self._handle = WriteHandle.from_bytes(task.handle)
        properties, schema = self._handle.properties, schema or self._handle.schema
        target_bytes = int(properties.get("write.target-file-size-bytes", _TARGET_BYTES))
        super().__init__("iceberg", lake_errors, task, to_arrow_schema(schema), target_bytes)
        self._io: FileIO = connection.file_io(self._handle.storage, self._handle.folder)
        self._is_clean = is_clean(schema)
        self._options, self._statistics = ParquetOptions.parse(properties), FileStatistics(schema, properties)
        self._pending_rows = 0
        self._encoded: list[bytes] = []
        self._offsets, self._first, self._last = np.empty(0, np.int64), -1, -1
        self._files: list[WrittenFile] = []
        self._keys: list[pa.RecordBatch] = []
        self._key_rows = 0
        self._key_files: list[WrittenFile] = []
        self._has_offset_cache = task.table.is_pk and not self._is_clean and not is_of_fluss(task.table.descriptor)

    def write(self, batch: pa.RecordBatch) -> None:
        """Cuts batches at row group limits, so that none exceeds the table's limits or this process's memory."""
        row_bytes = max(1, batch.nbytes // max(1, batch.num_rows))
        at = 0
        while at < batch.num_rows:
            if self._room(row_bytes) <= 0:
                self._flush()
            part = batch.slice(at, self._room(row_bytes))
            at += part.num_rows
            self._pending.append(part)
            self._pending_rows += part.num_rows
            self._pending_bytes += part.num_rows * row_bytes

    def _room(self, row_bytes: int) -> int:
        """Returns how many more rows the pending row group takes; at least one if it is empty."""
        if not self._pending:
            self._pending_rows = 0
        rows = self._options.row_group_rows - self._pending_rows
        room = min(rows, (self._options.row_group_bytes - self._pending_bytes) // row_bytes)
        return max(1, room) if not self._pending else room

    def fit(self, rows: pa.Table) -> pa.Table:
        self._offsets = np.asarray(rows.column(OFFSET).to_numpy(), np.int64)
        names = [n for n in rows.column_names if not self._is_clean or n not in SYSTEM]
        return self._encoding.fit(
            rows, lambda part: conform(part.select(names), self._schema, self._values, self._table)
        )

    def open_output(self, first: pa.Table) -> ParquetOutput:
        name = data_name(self._task.round_id, self._task.split, self._task.attempt, len(self._files))
        self._first = int(self._offsets[0])
        return ParquetOutput(self._io, f"{self._handle.folder}/{name}", self._schema, self._options)

    def append(self, output: ParquetOutput, rows: pa.Table) -> None:
        """Records facts about the file's offsets, in a few bytes for each row group."""
        output.write(rows)
        self._last = int(self._offsets[-1])
        if self._has_offset_cache:  # if rows are replaced by key, their offsets are not needed
            self._encoded.append(encode_offsets(self._offsets))

    def note(self, output: ParquetOutput) -> None:
        encoded, self._encoded = join_encoded(self._encoded) if self._encoded else b"", []
        if encoded:
            write_cache(self._io, output.path, encoded)
        statistics = self._statistics.of(output.metadata)
        if self._is_clean:
            number = self._task.split.bucket.number
            lower, upper = address_bounds(number, self._first), address_bounds(number, self._last)
            more: dict[str, dict[int, Any]] = {
                "lower_bounds": lower,
                "upper_bounds": upper,
                "null_value_counts": dict.fromkeys(lower, 0),
            }
            statistics.update({name: {**statistics[name], **values} for name, values in more.items()})
        file = WrittenFile(
            path=output.path,
            size_bytes=output.size,
            first_offset=self._first,
            last_offset=self._last,
            sort_order_id=self._handle.sort_order_id,
            offsets=encoded,
            **{k: v for k, v in statistics.items() if v is not None},
        )
        self._files.append(file)

    # ---- keys ------------------------------------------------------------------------------------------------------
    def delete_keys(self, batch: pa.RecordBatch) -> None:
        """Deletes keys; they do not affect rows of this writer: pass the keys before the rows that replace them."""
        self._keys.append(batch)
        self._key_rows += batch.num_rows
        if self._key_rows >= _KEY_FILE_ROWS:
            self._close_keys()

    def _close_keys(self) -> None:
        if not self._key_rows:
            return
        schema = key_schema(self._handle.schema)
        table, self._keys, self._key_rows = conform_keys(self._keys, schema), [], 0
        name = keys_name(self._task.round_id, self._task.split, self._task.attempt, len(self._key_files))
        with lake_errors(str(self._task.table.path), "write keys of"):
            output = ParquetOutput(self._io, f"{self._handle.folder}/{name}", schema, self._options)
            output.write(table)
            output.close()
            statistics = self._statistics.of(output.metadata)
        present = {k: v for k, v in statistics.items() if v is not None}
        self._key_files.append(
            WrittenFile(path=output.path, size_bytes=output.size, first_offset=0, last_offset=0, **present)
        )
        fault_point("lake.after-file", path=output.path)

    def result(self) -> bytes | None:
        self._close_keys()
        if not self._files and not self._key_files:
            return None
        result = WriteResult(
            bucket=self._task.split.bucket,
            schema_id=self._handle.schema.schema_id,
            files=tuple(self._files),
            keys=tuple(self._key_files),
        )
        return result.to_bytes()
