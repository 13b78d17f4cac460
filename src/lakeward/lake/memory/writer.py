# SPDX-License-Identifier: Apache-2.0
"""Writes one split into one file of the memory lake's storage."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np
import pyarrow as pa

from lakeward.changelog.columns import adds_row
from lakeward.errors import InvalidRequest, LakeSchemaBroken, LakeTableGone
from lakeward.lake.memory.rows import tag_columns
from lakeward.lake.memory.table import DataFile, KeyDeletes, MemoryLake, MemoryTable
from lakeward.model import BUCKET, CHANGE_TYPE, OFFSET, TIMESTAMP, fault_point, pack, unpack
from lakeward.spi import DeleteEncoding, LakeWriter, WriteTask

HANDLE_KIND, RESULT_KIND, VERSION = "memory-handle", "memory-write-result", 1


class MemoryLakeWriter(LakeWriter):
    def __init__(self, lake: MemoryLake, task: WriteTask, encodings: Set[DeleteEncoding]) -> None:
        self._encodings = encodings
        _, handle, _ = unpack(HANDLE_KIND, VERSION, task.handle)
        self._lake, self._task, self._handle = lake, task, handle
        self._table = _find_table(lake, task, handle)
        self._chunks: list[pa.Table] = []
        self._keys: list[pa.Table] = []
        self._changes: list[pa.Table] = []
        self._last = -1
        split = task.split
        self._name = (
            f"{handle['prefix']}{str(split.bucket).replace('/', '=')}-{split.index}-{split.start}-{task.attempt}"
        )

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._check(batch)
        numbers = pa.array(np.full(batch.num_rows, self._task.split.bucket.number, np.int32))
        names = [n for n in self._handle["columns"] if n in batch.schema.names]
        rows = pa.table(
            {
                **{n: batch.column(n) for n in names},
                BUCKET: numbers,
                OFFSET: batch.column(OFFSET),
                TIMESTAMP: batch.column(TIMESTAMP),
            }
        )
        self._chunks.append(rows)
        self._store()
        fault_point("lake.wrote-batch", path=self._name)

    def delete_keys(self, batch: pa.RecordBatch) -> None:
        self._check_encoding(DeleteEncoding.EQUALITY)
        self._keys.append(pa.table(batch).select(self._handle["primary_key"]))
        self._store()

    def write_changes(self, batch: pa.RecordBatch) -> None:
        """Keeps the last change of each key. All keys seen delete their rows in older snapshots."""
        self._check_encoding(DeleteEncoding.NATIVE)
        self._changes += [pa.table(batch)] if batch.num_rows else []
        key = self._handle["primary_key"]
        last = {tuple(row[k] for k in key): row for t in self._changes for row in t.to_pylist()}
        rows = [r for r in last.values() if adds_row(np.array([r[CHANGE_TYPE]], np.int8))[0]]
        changes = pa.concat_tables(self._changes, promote_options="default").drop_columns([CHANGE_TYPE])
        self._keys = [pa.table({k: [values[i] for values in last] for i, k in enumerate(key)}).cast(_of(changes, key))]
        self._chunks = []
        self._last = -1
        ordered = pa.Table.from_pylist([{n: r.get(n) for n in changes.column_names} for r in rows], changes.schema)
        for chunk in ordered.sort_by(OFFSET).to_batches():
            self.write(chunk)
        self._store()

    def complete(self) -> bytes | None:
        fault_point("lake.before-complete", path=self._name)
        if not self._chunks and not self._keys:
            return None
        self._store()
        paths = [*([f"{self._name}.data"] if self._chunks else []), *([f"{self._name}.keys"] if self._keys else [])]
        rows = sum(c.num_rows for c in self._chunks)
        size = sum(c.nbytes for c in (*self._chunks, *self._keys))
        body: dict[str, Any] = {"paths": paths, "rows": rows, "bytes": size}
        return pack(RESULT_KIND, VERSION, body)

    def abort(self) -> None:
        self._chunks, self._keys = [], []

    def _check_encoding(self, encoding: DeleteEncoding) -> None:
        if encoding not in self._encodings:
            raise InvalidRequest(
                what=f"deletes of {self._task.split}", reason=f"this lake does not support {encoding} deletes"
            )

    def _store(self) -> None:
        """Stores the rows so far: after each batch, so that a writer that dies leaves a file behind."""
        bucket, at = self._task.split.bucket, self._lake.clock.now_ms()
        with self._lake.lock:
            if self._chunks:
                path = f"{self._name}.data"
                rows = tag_columns(pa.concat_tables(self._chunks, promote_options="default"), self._handle["columns"])
                self._table.files[path] = DataFile(path=path, bucket=bucket, rows=rows, modified_at_ms=at)
            if self._keys:
                path = f"{self._name}.keys"
                self._table.files[path] = KeyDeletes(
                    path=path,
                    bucket=bucket,
                    keys=tag_columns(pa.concat_tables(self._keys), self._handle["columns"]),
                    modified_at_ms=at,
                )

    def _check(self, batch: pa.RecordBatch) -> None:
        unknown = set(batch.schema.names) - {*self._handle["columns"], OFFSET, TIMESTAMP}
        if unknown:
            raise LakeSchemaBroken(
                table=str(self._task.table.path), diff=f"no column {', '.join(sorted(unknown))} in the lake"
            )
        offsets = batch.column(OFFSET).to_numpy()
        if offsets[0] <= self._last or (np.diff(offsets) <= 0).any():
            raise InvalidRequest(what=f"rows of {self._task.split}", reason="their offsets do not ascend")
        self._last = int(offsets[-1])


def _of(table: pa.Table, names: list[str]) -> pa.Schema:
    return pa.schema([table.schema.field(n) for n in names])


def _find_table(lake: MemoryLake, task: WriteTask, handle: dict[str, Any]) -> MemoryTable:
    table = lake.table(task.table.path)
    if table.uuid != handle["uuid"]:
        raise LakeTableGone(table=str(task.table.path))
    return table
