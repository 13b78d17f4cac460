# SPDX-License-Identifier: Apache-2.0
"""Writes one split: rows of a log table into base files, changes of a PK table into a log file of its bucket.

Files lie aside, under names of their own, until the commit moves them to where Hudi looks for them.
"""

from __future__ import annotations

import io
import uuid
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.bucketing import find_ambiguous
from lakeward.errors import InvalidRequest
from lakeward.lake.core.columns import conform
from lakeward.lake.dictionaries import choose_codec, dictionary_columns
from lakeward.lake.encoding import RowEncoding
from lakeward.lake.hudi import lake_errors
from lakeward.lake.hudi.meta.columns import (
    META_COLUMNS,
    RECORD_KEY,
    SEQUENCE,
    decode_columns,
    file_schema,
    stored_schema,
)
from lakeward.lake.hudi.meta.properties import partition_path
from lakeward.lake.hudi.meta.slices import base_name, log_name, new_file_id
from lakeward.lake.hudi.scan.logblock import DELETES, PARQUET_ROWS, encode_block, encode_deletes
from lakeward.lake.hudi.scan.recordkey import meta_columns, record_keys
from lakeward.lake.tablefiles import TableFiles, sync
from lakeward.model.bucket import partition_values
from lakeward.model.change import ChangeType
from lakeward.model.faults import fault_point
from lakeward.model.schema import BUCKET, CHANGE_TYPE
from lakeward.protocol.packed import Packed
from lakeward.spi.lake.writer import LakeWriter, WriteTask

_ROW_GROUP_BYTES, _ROW_GROUP_ROWS = 64 * 1024 * 1024, 1_048_576
"""Of Arrow: what a writer holds."""

FIRST_VERSION = 2
"""Of a round's log files; what puts rows of others right comes before them, as the first."""

_DICTIONARY_BYTES = 2 * 1024 * 1024
TARGET_KEY, TARGET_BYTES = "hoodie.parquet.max.file.size", 120 * 1024 * 1024
"""Hudi's own property, and its default."""

_IS_GONE = np.array([c in (ChangeType.DELETE, ChangeType.UPDATE_BEFORE) for c in ChangeType], np.bool_)
"""Looked up by change type."""


@dataclass(frozen=True)
class HudiWriteHandle(Packed):
    """What writers need to know of the table. `instant` is the commit's, asked for when the round began."""

    packed_as: ClassVar = ("hudi-handle", 1)

    staging: str
    instant: str
    columns: str
    avro: str
    """With Hudi's own columns."""

    partition_keys: tuple[str, ...]
    key_fields: tuple[str, ...]
    is_pk: bool
    target_bytes: int
    groups: dict[str, str]
    """Of a PK table: bucket -> file id, where it has one."""


@dataclass(frozen=True)
class StagedFile(Packed):
    """A file that was written, `staged` its path, and what it is to become."""

    packed_as: ClassVar = ("hudi-staged-file", 1)

    staged: str
    name: str
    partition: str
    file_id: str
    size_bytes: int
    rows: int
    deletes: int = 0

    @property
    def path(self) -> str:
        return f"{self.partition}/{self.name}" if self.partition else self.name


@dataclass(frozen=True)
class HudiWriteResult(Packed):
    packed_as: ClassVar = ("hudi-write-result", 1)

    instant: str
    bucket: str
    group: str
    """Of a PK table: the file group that the bucket had when the round began; "" where it had none."""

    files: tuple[StagedFile, ...]


class HudiLakeWriter(LakeWriter):
    def __init__(self, files: TableFiles, task: WriteTask) -> None:
        self._files, self._task = files, task
        self._handle = handle = HudiWriteHandle.from_bytes(task.handle)
        columns = decode_columns(handle.columns)
        self._schema, self._stored = file_schema(columns, handle.avro), stored_schema(columns)
        self._encoding = RowEncoding.of("hudi", task)
        kinds = {c.name: c.type for c in columns}
        self._key_types = [kinds.get(name) for name in handle.key_fields]
        values = partition_values(task.split.bucket.partition)
        self._values = dict(zip(handle.partition_keys, values, strict=True))
        self._partition = partition_path(handle.partition_keys, values)
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._staged: list[StagedFile] = []
        self._output: BaseFile | LogFile | None = None
        self._is_log = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Cuts batches so that no row group outgrows this process's memory. Rows of a PK table are a first base file
        where their bucket has none."""
        self._add(batch, is_log=self._handle.is_pk and self._group is not None)

    def write_changes(self, batch: pa.RecordBatch) -> None:
        if not self._handle.is_pk:
            raise InvalidRequest(what=f"changes of {self._task.split}", reason="the lake table has no primary key")
        self._add(batch, is_log=True)

    def complete(self) -> bytes | None:
        self._flush()
        self._close()
        if not self._staged:
            return None
        bucket = str(self._task.split.bucket)
        return HudiWriteResult(self._handle.instant, bucket, self._group or "", tuple(self._staged)).to_bytes()

    def abort(self) -> None:
        self._pending, self._pending_bytes = [], 0
        if self._output is not None:
            self._output.close()
            self._output = None

    @property
    def _group(self) -> str | None:
        return self._handle.groups.get(str(self._task.split.bucket))

    def _add(self, batch: pa.RecordBatch, *, is_log: bool) -> None:
        if is_log != self._is_log:
            self._flush()
            self._close()
            self._is_log = is_log
        if self._pending and self._pending[0].schema.names != batch.schema.names:  # deletes may come as keys alone
            self._flush()
        rows = max(1, min(_ROW_GROUP_ROWS, _ROW_GROUP_BYTES * batch.num_rows // max(1, batch.nbytes)))
        for at in range(0, batch.num_rows, rows):
            part = batch.slice(at, rows)
            if self._pending_bytes + part.nbytes > _ROW_GROUP_BYTES:
                self._flush()
            self._pending.append(part)
            self._pending_bytes += part.nbytes

    def _flush(self) -> None:
        """Pending rows become a row group, or a block; a base file that has reached its size is closed."""
        if not self._pending:
            return
        rows = pa.Table.from_batches(self._pending)
        self._pending, self._pending_bytes = [], 0
        with lake_errors(str(self._task.table.path), "write a file of"):
            if self._output is None:
                self._output = self._open()
            fault_point("lake.before-row-group", path=self._output.staged)
            if isinstance(self._output, LogFile):
                with self._encoding.errors(rows, self._stored):
                    self._write_block(self._output, rows)
            else:
                with self._encoding.errors(rows, self._stored):
                    self._check_keys(rows)
                    keys = self._keys(rows)
                    self._output.write(self._whole(rows, keys, self._output.name, self._output.rows))
                if self._output.size >= self._handle.target_bytes and not self._handle.is_pk:
                    self._close()

    def _write_block(self, output: LogFile, rows: pa.Table) -> None:
        keys = self._keys(rows)
        last = _last_of_key(keys)
        gone = np.zeros(len(keys), np.bool_)
        if CHANGE_TYPE in rows.column_names:
            gone = _IS_GONE[rows.column(CHANGE_TYPE).to_numpy()]
            rows = rows.drop_columns([CHANGE_TYPE])
        live = pa.array(last & ~gone)
        kept, deleted = keys.filter(live), keys.filter(pa.array(last & gone)).to_pylist()
        if len(kept):
            rows = rows.filter(live)
            self._check_keys(rows)
        table = self._whole(rows, kept, output.file_id, output.rows) if len(kept) else None
        output.write(table, deleted)

    def _keys(self, rows: pa.Table) -> pa.Array:
        keyed = self._key_columns(rows)
        is_named = len(keyed.column_names) > 1 or len(self._handle.partition_keys) > 1
        return record_keys(keyed, keyed.column_names, self._key_types, is_named=is_named)

    def _key_columns(self, rows: pa.Table) -> pa.Table:
        names = list(self._handle.key_fields)
        there = {n: rows.column(n) for n in names if n in rows.column_names}
        if BUCKET in names:
            there[BUCKET] = pa.repeat(pa.scalar(self._task.split.bucket.number, pa.int32()), rows.num_rows)
        for name, value in self._values.items():
            if name in names and name not in there:
                there[name] = pa.repeat(pa.scalar(value), rows.num_rows)
        return pa.table([there[n] for n in names], names=names)

    def _check_keys(self, rows: pa.Table) -> None:
        """The hot store refuses such a key, unless it had the row before it did so. Raises `RowNotEncoded`."""
        keyed = self._key_columns(rows)
        wrong = find_ambiguous(keyed.column_names, keyed.columns) if self._handle.is_pk else None
        if wrong is not None:
            row, column, reason = wrong
            raise self._encoding.error(rows, column, row, f"{reason}; another row may have the same record key")

    def _whole(self, rows: pa.Table, keys: pa.Array, name: str, start: int) -> pa.Table:
        bucket = self._task.split.bucket
        values = {**self._values, BUCKET: str(bucket.number)}
        path = str(self._task.table.path)
        stored = self._encoding.fit(rows, lambda batch: conform(batch, self._stored, values, path))
        meta = meta_columns(
            keys,
            instant=self._handle.instant,
            partition=self._partition,
            file_name=name,
            number=self._task.split.index,
            start=start,
        )
        return pa.Table.from_arrays([*meta, *stored.columns], schema=self._schema)

    def _open(self) -> BaseFile | LogFile:
        split, handle = self._task.split, self._handle
        at = len(self._staged)
        number = 0 if handle.is_pk else split.index * 10_000 + at
        own = new_file_id(split.bucket.number, self._task.round_id, number, is_pk=handle.is_pk)
        file_id = self._group or own
        staged = f"{handle.staging}/{split.index}-{self._task.attempt}-{at}-{uuid.uuid4().hex}"
        if self._is_log:
            name = log_name(file_id, split.index, handle.instant, split.index + FIRST_VERSION)
            return LogFile(self._files, staged, name, file_id, handle, self._partition)
        name = base_name(file_id, split.index, handle.instant)
        return BaseFile(self._files, staged, name, file_id, self._schema)

    def _close(self) -> None:
        output, self._output = self._output, None
        if output is None:
            return
        with lake_errors(str(self._task.table.path), "close a file of"):
            output.close()
            sync([output.staged])
        self._staged.append(output.staged_file(self._partition))
        fault_point("lake.after-file", path=output.staged)


class _Output:
    staged: str
    name: str
    file_id: str
    rows = 0
    deletes = 0
    size = 0

    def staged_file(self, partition: str) -> StagedFile:
        """Once it is closed."""
        return StagedFile(self.staged, self.name, partition, self.file_id, self.size, self.rows, self.deletes)


class BaseFile(_Output):
    """A Parquet file that grows by row groups."""

    def __init__(self, files: TableFiles, staged: str, name: str, file_id: str, schema: pa.Schema) -> None:
        self.staged, self.name, self.file_id = staged, name, file_id
        self._schema = schema
        self._sink = files.open_output(staged)
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._sink, self._schema, **parquet_options(table))
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self.rows += table.num_rows
        self.size = self._sink.tell()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self.size = self._sink.tell()
        self._sink.close()


class LogFile(_Output):
    """Blocks of rows, each followed by one of the keys that were deleted beside them."""

    def __init__(
        self, files: TableFiles, staged: str, name: str, file_id: str, handle: HudiWriteHandle, partition: str
    ) -> None:
        self.staged, self.name, self.file_id = staged, name, file_id
        self._handle, self._partition = handle, partition
        self._sink = files.open_output(staged)

    def write(self, table: pa.Table | None, deleted: list[str]) -> None:
        instant, avro = self._handle.instant, self._handle.avro
        if table is not None:
            content = io.BytesIO()
            pq.write_table(table, content, row_group_size=table.num_rows, **parquet_options(table))
            self._sink.write(encode_block(PARQUET_ROWS, instant, avro, content.getvalue()))
            self.rows += table.num_rows
        if deleted:
            content_bytes = encode_deletes(deleted, self._partition)
            self._sink.write(encode_block(DELETES, instant, avro, content_bytes))
            self.deletes += len(deleted)

    def close(self) -> None:
        self.size = self._sink.tell()
        self._sink.close()


def parquet_options(first: pa.Table) -> dict[str, Any]:
    user = [n for n in first.column_names if n not in META_COLUMNS]
    chosen = dictionary_columns(first.select(user))
    meta = [n for n in META_COLUMNS if n not in (RECORD_KEY, SEQUENCE)]
    return {
        "compression": choose_codec(first),
        "use_dictionary": [*meta, *chosen] if isinstance(chosen, list) else chosen,
        "dictionary_pagesize_limit": _DICTIONARY_BYTES,
        "store_schema": False,
    }


def _last_of_key(keys: pa.Array) -> npt.NDArray[np.bool_]:
    """Which rows are the last of their key."""
    numbers = keys.dictionary_encode().indices.to_numpy()
    _, first = np.unique(numbers[::-1], return_index=True)
    last = np.zeros(len(numbers), np.bool_)
    last[len(numbers) - 1 - first] = True
    return last
