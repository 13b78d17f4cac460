# SPDX-License-Identifier: Apache-2.0
"""Writes one split: cuts batches to fit into memory, and writes them to files of bounded size."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.lake.core.columns import conform
from lakeward.lake.core.failures import LakeErrors
from lakeward.lake.encoding import RowEncoding, parquet_options
from lakeward.lake.tablefiles import TableFiles, sync
from lakeward.model import BUCKET, fault_point, partition_values
from lakeward.spi import LakeWriter, WriteTask

PENDING_BYTES, PENDING_ROWS = 64 * 1024 * 1024, 1_048_576
"""The most Arrow data that a writer buffers: 10 to 20 MB of Parquet, large enough for every reader."""


class DataOutput(Protocol):
    """A file that is being written. `size` is compared with the table's target size."""

    path: str
    size: int

    def write(self, table: pa.Table) -> None: ...

    def close(self) -> None:
        """Closes the file; it is on stable storage afterwards."""

    def abandon(self) -> None:
        """Closes handles; the file stays for orphan removal."""


O = TypeVar("O", bound=DataOutput)  # noqa: E741


class ParquetDataFile:
    """A Parquet file whose encoding depends on its first rows. `options`: more options of Arrow's writer."""

    def __init__(self, files: TableFiles, path: str, schema: pa.Schema, **options: Any) -> None:
        self.path, self.rows, self.size = path, 0, 0
        self._schema, self._options = schema, options
        self._sink = files.open_output(path)
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        """Writes rows as one row group."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._sink, self._schema, **self.parquet_options(table))
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self.rows += table.num_rows
        self.size = self._sink.tell()

    def parquet_options(self, first: pa.Table) -> dict[str, Any]:
        return {**parquet_options(first), **self._options}

    def close(self) -> None:
        self.abandon()
        sync([self.path])

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if not self._sink.closed:
            self.size = self._sink.tell()
            self._sink.close()

    @property
    def metadata(self) -> pq.FileMetaData:
        """Metadata of the closed file."""
        assert self._writer is not None
        return self._writer.writer.metadata


class CoreWriter(LakeWriter, Generic[O]):
    """A writer that cuts rows into files. `schema`: schema of the rows in a file. `keys`: the table's partition
    columns, whose values come from the split."""

    def __init__(
        self,
        lake: str,
        errors: LakeErrors,
        task: WriteTask,
        schema: pa.Schema,
        target_bytes: int,
        keys: Sequence[str] = (),
    ) -> None:
        self._task, self._schema, self._target_bytes = task, schema, target_bytes
        self._table, self._errors, self._encoding = str(task.table.path), errors, RowEncoding.of(lake, task)
        bucket = task.split.bucket
        values = dict(zip(keys, partition_values(bucket.partition), strict=True)) if keys else {}
        self._values: dict[str, str] = {**values, BUCKET: str(bucket.number)}
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._output: O | None = None

    @abstractmethod
    def open_output(self, first: pa.Table) -> O:
        """Opens the next file, which begins with these rows."""

    @abstractmethod
    def note(self, output: O) -> None:
        """Records a closed file for the result."""

    @abstractmethod
    def result(self) -> bytes | None:
        """Builds the result from all closed files; None without any."""

    def fit(self, rows: pa.Table) -> pa.Table:
        """Converts rows to the file's schema. Raises `RowNotEncoded`, `LakeSchemaBroken`."""
        return self._encoding.fit(rows, lambda part: conform(part, self._schema, self._values, self._table))

    def append(self, output: O, rows: pa.Table) -> None:
        """Writes rows that `fit` converted."""
        output.write(rows)

    def file_name(self) -> str:
        """Returns a new file name, without prefix and suffix."""
        split = self._task.split
        facts = (split.bucket.number, split.index, split.start, self._task.attempt, uuid.uuid4().hex)
        return "-".join(map(str, facts))

    def write(self, batch: pa.RecordBatch) -> None:
        rows = max(1, min(PENDING_ROWS, PENDING_BYTES * batch.num_rows // max(1, batch.nbytes)))
        for at in range(0, batch.num_rows, rows):
            part = batch.slice(at, rows)
            if self._pending_bytes + part.nbytes > PENDING_BYTES:
                self._flush()
            self._pending.append(part)
            self._pending_bytes += part.nbytes

    def complete(self) -> bytes | None:
        self._flush()
        self._close()
        return self.result()

    def abort(self) -> None:
        self._pending, self._pending_bytes = [], 0
        output, self._output = self._output, None
        if output is not None:
            with self._errors(self._table, "close a file of"):
                output.abandon()

    def _flush(self) -> None:
        """Writes pending rows to the file, and closes it once it has reached its target size."""
        if not self._pending:
            return
        pending = pa.Table.from_batches(self._pending)
        self._pending, self._pending_bytes = [], 0
        rows = self.fit(pending)
        with self._errors(self._table, "write a file of"):
            if self._output is None:
                self._output = self.open_output(rows)
            fault_point("lake.before-row-group", path=self._output.path)
            with self._encoding.errors(pending, self._schema):
                self.append(self._output, rows)
            if self._output.size >= self._target_bytes:
                self._close()

    def _close(self) -> None:
        output, self._output = self._output, None
        if output is None:
            return
        with self._errors(self._table, "close a file of"):
            output.close()
        self.note(output)
        fault_point("lake.after-file", path=output.path)
