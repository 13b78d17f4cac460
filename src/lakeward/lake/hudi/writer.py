# SPDX-License-Identifier: Apache-2.0
"""Writes one split: rows of a log table to base files, changes of a PK table to a log file of its bucket.

Files are staged under temporary names until the commit moves them to the folders that Hudi reads.
"""

from __future__ import annotations

import io
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.bucketing import find_ambiguous
from lakeward.errors import InvalidRequest
from lakeward.lake import encoding
from lakeward.lake.core.writer import CoreWriter, ParquetDataFile
from lakeward.lake.encoding import choose_codec
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
from lakeward.lake.hudi.scan.logblock import (
    DELETES,
    PARQUET_ROWS,
    encode_block,
    encode_deletes,
    meta_columns,
    record_keys,
)
from lakeward.lake.tablefiles import TableFiles, sync
from lakeward.model import BUCKET, CHANGE_TYPE, ChangeType, partition_values
from lakeward.protocol.codec import Packed
from lakeward.spi import WriteTask

FIRST_VERSION = 2
"""Version of a round's first log file; the log file that reverts foreign rows comes before, as version 1."""

TARGET_KEY, TARGET_BYTES = "hoodie.parquet.max.file.size", 120 * 1024 * 1024
"""Hudi's own property for the size of files, and its default."""

_IS_GONE = np.array([c in (ChangeType.DELETE, ChangeType.UPDATE_BEFORE) for c in ChangeType], np.bool_)
"""By change type, whether it deletes."""


@dataclass(frozen=True)
class HudiWriteHandle(Packed):
    """The table's facts for writers. `instant`: the commit's, requested when the round began."""

    packed_as: ClassVar = ("hudi-handle", 1)

    staging: str
    instant: str
    columns: str
    avro: str
    """The Avro schema, with Hudi's own columns."""

    partition_keys: tuple[str, ...]
    key_fields: tuple[str, ...]
    is_pk: bool
    target_bytes: int
    groups: dict[str, str]
    """For a PK table: bucket -> file id, if it has one."""


@dataclass(frozen=True)
class StagedFile(Packed):
    """A written file: `staged` is its path, the rest describes it after the commit."""

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
    """For a PK table: the bucket's file group when the round began; "" without one."""

    files: tuple[StagedFile, ...]


class HudiLakeWriter(CoreWriter["BaseFile | LogFile"]):
    def __init__(self, files: TableFiles, task: WriteTask) -> None:
        handle = HudiWriteHandle.from_bytes(task.handle)
        columns = decode_columns(handle.columns)
        # A PK table's bucket is one file group, of which a round writes one base file.
        target = sys.maxsize if handle.is_pk else handle.target_bytes
        super().__init__("hudi", lake_errors, task, stored_schema(columns), target, handle.partition_keys)
        self._files, self._handle, self._file_schema = files, handle, file_schema(columns, handle.avro)
        kinds = {c.name: c.type for c in columns}
        self._key_types = [kinds.get(name) for name in handle.key_fields]
        self._partition = partition_path(handle.partition_keys, partition_values(task.split.bucket.partition))
        self._group = handle.groups.get(str(task.split.bucket))
        self._staged: list[StagedFile] = []
        self._is_log = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Writes rows; those of a PK table are a bucket's first base file."""
        self._add(batch, is_log=self._handle.is_pk and self._group is not None)

    def write_changes(self, batch: pa.RecordBatch) -> None:
        if not self._handle.is_pk:
            raise InvalidRequest(what=f"changes of {self._task.split}", reason="the lake table has no primary key")
        self._add(batch, is_log=True)

    def _add(self, batch: pa.RecordBatch, *, is_log: bool) -> None:
        if is_log != self._is_log:
            self._flush()
            self._close()
            self._is_log = is_log
        if self._pending and self._pending[0].schema.names != batch.schema.names:  # deletes may come as keys alone
            self._flush()
        super().write(batch)

    def fit(self, rows: pa.Table) -> pa.Table:
        """Writes pending changes, without deleted rows."""
        return rows

    def append(self, output: BaseFile | LogFile, rows: pa.Table) -> None:
        if isinstance(output, LogFile):
            self._write_block(output, rows)
        else:
            self._check_keys(rows)
            output.write(self._whole(rows, self._keys(rows), output.name, output.rows))

    def note(self, output: BaseFile | LogFile) -> None:
        self._staged.append(output.staged_file(self._partition))

    def result(self) -> bytes | None:
        if not self._staged:
            return None
        bucket = str(self._task.split.bucket)
        return HudiWriteResult(self._handle.instant, bucket, self._group or "", tuple(self._staged)).to_bytes()

    def open_output(self, first: pa.Table) -> BaseFile | LogFile:
        split, handle = self._task.split, self._handle
        at = len(self._staged)
        number = 0 if handle.is_pk else split.index * 10_000 + at
        new_id = new_file_id(split.bucket.number, self._task.round_id, number, is_pk=handle.is_pk)
        file_id = self._group or new_id
        staged = f"{handle.staging}/{split.index}-{self._task.attempt}-{at}-{uuid.uuid4().hex}"
        if self._is_log:
            name = log_name(file_id, split.index, handle.instant, split.index + FIRST_VERSION)
            return LogFile(self._files, staged, name, file_id, handle, self._partition)
        name = base_name(file_id, split.index, handle.instant)
        return BaseFile(self._files, staged, name, file_id, self._file_schema)

    def _write_block(self, output: LogFile, rows: pa.Table) -> None:
        keys = self._keys(rows)
        last = _last_of_key(keys)
        is_delete = np.zeros(len(keys), np.bool_)
        if CHANGE_TYPE in rows.column_names:
            is_delete = _IS_GONE[rows.column(CHANGE_TYPE).to_numpy()]
            rows = rows.drop_columns([CHANGE_TYPE])
        live = pa.array(last & ~is_delete)
        live_keys, deleted = keys.filter(live), keys.filter(pa.array(last & is_delete)).to_pylist()
        if len(live_keys):
            rows = rows.filter(live)
            self._check_keys(rows)
        table = self._whole(rows, live_keys, output.file_id, output.rows) if len(live_keys) else None
        output.write(table, deleted)

    def _keys(self, rows: pa.Table) -> pa.Array:
        keyed = self._key_columns(rows)
        is_named = len(keyed.column_names) > 1 or len(self._handle.partition_keys) > 1
        return record_keys(keyed, keyed.column_names, self._key_types, is_named=is_named)

    def _key_columns(self, rows: pa.Table) -> pa.Table:
        names = list(self._handle.key_fields)
        there = {n: rows.column(n) for n in names if n in rows.column_names}
        for name, value in self._values.items():
            if name in names and (name == BUCKET or name not in there):
                number = pa.scalar(int(value), pa.int32()) if name == BUCKET else pa.scalar(value)
                there[name] = pa.repeat(number, rows.num_rows)
        return pa.table([there[n] for n in names], names=names)

    def _check_keys(self, rows: pa.Table) -> None:
        """Returns the error for a key that Hudi cannot spell. The hot store refuses such a key, unless it had the row
        before it did so. Raises `RowNotEncoded`."""
        keyed = self._key_columns(rows)
        wrong = find_ambiguous(keyed.column_names, keyed.columns) if self._handle.is_pk else None
        if wrong is not None:
            row, column, reason = wrong
            raise self._encoding.error(rows, column, row, f"{reason}; another row may have the same record key")

    def _whole(self, rows: pa.Table, keys: pa.Array, name: str, start: int) -> pa.Table:
        stored = super().fit(rows)
        meta = meta_columns(
            keys,
            instant=self._handle.instant,
            partition=self._partition,
            file_name=name,
            number=self._task.split.index,
            start=start,
        )
        return pa.Table.from_arrays([*meta, *stored.columns], schema=self._file_schema)


class BaseFile(ParquetDataFile):
    """A Parquet file, written by row groups."""

    def __init__(self, files: TableFiles, staged: str, name: str, file_id: str, schema: pa.Schema) -> None:
        super().__init__(files, staged, schema)
        self.name, self.file_id = name, file_id

    def parquet_options(self, first: pa.Table) -> dict[str, Any]:
        return parquet_options(first)

    def staged_file(self, partition: str) -> StagedFile:
        """Facts of the closed file."""
        return StagedFile(self.path, self.name, partition, self.file_id, self.size, self.rows)


class LogFile:
    """Blocks of rows, each followed by a block of the keys deleted with them. Its size is known once it is closed."""

    def __init__(
        self, files: TableFiles, staged: str, name: str, file_id: str, handle: HudiWriteHandle, partition: str
    ) -> None:
        self.path, self.name, self.file_id = staged, name, file_id
        self.rows = self.deletes = self.size = 0
        self._handle, self._partition = handle, partition
        self._sink = files.open_output(staged)

    def write(self, table: pa.Table | None, deleted: Sequence[str] = ()) -> None:
        instant, avro = self._handle.instant, self._handle.avro
        if table is not None:
            content = io.BytesIO()
            pq.write_table(table, content, row_group_size=table.num_rows, **parquet_options(table))
            self._sink.write(encode_block(PARQUET_ROWS, instant, avro, content.getvalue()))
            self.rows += table.num_rows
        if deleted:
            self._sink.write(encode_block(DELETES, instant, avro, encode_deletes(deleted, self._partition)))
            self.deletes += len(deleted)

    def close(self) -> None:
        self.size = self._sink.tell()
        self._sink.close()
        sync([self.path])

    def abandon(self) -> None:
        self._sink.close()

    def staged_file(self, partition: str) -> StagedFile:
        """Facts of the closed file."""
        return StagedFile(self.path, self.name, partition, self.file_id, self.size, self.rows, self.deletes)


def parquet_options(first: pa.Table) -> dict[str, Any]:
    user = [n for n in first.column_names if n not in META_COLUMNS]
    options = encoding.parquet_options(first.select(user))
    meta = [n for n in META_COLUMNS if n not in (RECORD_KEY, SEQUENCE)]
    return {**options, "compression": choose_codec(first), "use_dictionary": [*meta, *options["use_dictionary"]]}


def _last_of_key(keys: pa.Array) -> npt.NDArray[np.bool_]:
    """Marks the rows that are the last of their key."""
    numbers = keys.dictionary_encode().indices.to_numpy()
    _, first = np.unique(numbers[::-1], return_index=True)
    last = np.zeros(len(numbers), np.bool_)
    last[len(numbers) - 1 - first] = True
    return last
