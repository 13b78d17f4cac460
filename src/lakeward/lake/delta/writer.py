# SPDX-License-Identifier: Apache-2.0
"""Writes one split: Arrow batches in, data files of bounded size out, one row group in memory."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.lake.core.columns import conform
from lakeward.lake.delta import lake_errors
from lakeward.lake.delta.columns import file_schema, parse_schema_string, table_schema
from lakeward.lake.delta.meta.actions import WHOLE, AddFile
from lakeward.lake.delta.stats import file_stats
from lakeward.lake.dictionaries import choose_codec, dictionary_columns
from lakeward.lake.encoding import RowEncoding
from lakeward.lake.tablefiles import TableFiles, sync
from lakeward.model.bucket import partition_values
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId
from lakeward.model.schema import BUCKET
from lakeward.protocol.packed import Packed
from lakeward.spi.lake.writer import LakeWriter, WriteTask

_ROW_GROUP_BYTES, _ROW_GROUP_ROWS = 64 * 1024 * 1024, 1_048_576
"""Of Arrow: what a writer holds. 10 to 20 MB of Parquet, large enough for every reader."""

_DICTIONARY_BYTES = 2 * 1024 * 1024
_TARGET_KEY, _TARGET_BYTES = "delta.targetFileSize", 512 * 1024 * 1024
_OURS = "lakeward-"


@dataclass(frozen=True)
class DeltaWriteHandle(Packed):
    """What writers need to know of the table. `schema` is the log's spelling of its columns."""

    packed_as: ClassVar = ("delta-handle", 1)

    root: str
    schema: str
    partition_columns: tuple[str, ...]
    target_bytes: int

    @classmethod
    def of(cls, root: str, metadata: dict[str, Any]) -> DeltaWriteHandle:
        target = (metadata.get("configuration") or {}).get(_TARGET_KEY, "")
        size = int(target) if target.isdigit() else _TARGET_BYTES
        return cls(root, metadata["schemaString"], tuple(metadata["partitionColumns"]), size)


@dataclass(frozen=True)
class DeltaWriteResult(Packed):
    """The files of one split, as `add` actions in JSON."""

    packed_as: ClassVar = ("delta-write-result", 1)

    actions: tuple[str, ...]

    @property
    def files(self) -> list[AddFile]:
        return [AddFile(json.loads(action)) for action in self.actions]


def round_folder(round_id: RoundId) -> str:
    """Below the table's: what a round writes lies together, vectors too, which Delta names by folder and id."""
    return f"{_OURS}{round_id}"


def is_round_folder(name: str) -> bool:
    return name.startswith(_OURS)


class DeltaLakeWriter(LakeWriter):
    def __init__(self, files: TableFiles, task: WriteTask) -> None:
        self._files, self._task = files, task
        self._handle = handle = DeltaWriteHandle.from_bytes(task.handle)
        self._schema = file_schema(table_schema(parse_schema_string(handle.schema)))
        self._encoding = RowEncoding.of("delta", task)
        self._folder = round_folder(task.round_id)
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._output: pq.ParquetWriter | None = None
        self._sink: pa.NativeFile | None = None
        self._path = ""
        self._actions: list[dict[str, Any]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Cuts batches so that no row group outgrows this process's memory."""
        rows = max(1, min(_ROW_GROUP_ROWS, _ROW_GROUP_BYTES * batch.num_rows // max(1, batch.nbytes)))
        for at in range(0, batch.num_rows, rows):
            part = batch.slice(at, rows)
            if self._pending_bytes + part.nbytes > _ROW_GROUP_BYTES:
                self._flush()
            self._pending.append(part)
            self._pending_bytes += part.nbytes

    def complete(self) -> bytes | None:
        self._flush()
        if self._output is not None:
            self._close_file()
        return DeltaWriteResult(tuple(map(json.dumps, self._actions))).to_bytes() if self._actions else None

    def abort(self) -> None:
        self._pending, self._pending_bytes = [], 0
        if self._output is not None and self._sink is not None:
            self._output.close()
            self._sink.close()
            self._output = self._sink = None

    def _flush(self) -> None:
        """Pending rows become a row group; a file that has reached its size is closed."""
        if not self._pending:
            return
        pending, path = pa.Table.from_batches(self._pending), str(self._task.table.path)
        table = self._encoding.fit(pending, lambda rows: conform(rows, self._schema, self._partition(), path))
        self._pending, self._pending_bytes = [], 0
        with lake_errors(str(self._task.table.path), "write a file of"):
            if self._output is None:
                self._open(table)
            assert self._output is not None
            assert self._sink is not None
            fault_point("lake.before-row-group", path=self._location)
            with self._encoding.errors(pending, self._schema):
                self._output.write_table(table, row_group_size=table.num_rows)
            if self._sink.tell() >= self._handle.target_bytes:
                self._close_file()

    @property
    def _location(self) -> str:
        return f"{self._handle.root}/{self._path}"

    def _open(self, first: pa.Table) -> None:
        split = self._task.split
        facts = (split.bucket.number, split.index, split.start, self._task.attempt, uuid.uuid4().hex)
        self._path = f"{self._folder}/{WHOLE}{'-'.join(map(str, facts))}.parquet"
        self._sink = self._files.open_output(self._location)
        self._output = pq.ParquetWriter(
            self._sink,
            self._schema,
            compression=choose_codec(first),
            use_dictionary=dictionary_columns(first),
            dictionary_pagesize_limit=_DICTIONARY_BYTES,
            store_schema=False,  # with ARROW:schema other readers take large_string and fail
            store_decimal_as_integer=True,
        )

    def _close_file(self) -> None:
        assert self._output is not None
        assert self._sink is not None
        with lake_errors(str(self._task.table.path), "close a file of"):
            self._output.close()
            size = self._sink.tell()
            self._sink.close()
            sync([self._location])
        self._actions.append(
            {
                "path": self._path,
                "partitionValues": self._partition(),
                "size": size,
                "modificationTime": int(time.time() * 1000),
                "dataChange": True,
                "stats": file_stats(self._output.writer.metadata, self._handle.partition_columns),
            }
        )
        self._output = self._sink = None
        fault_point("lake.after-file", path=self._location)

    def _partition(self) -> dict[str, str]:
        bucket = self._task.split.bucket
        keys = [c for c in self._handle.partition_columns if c != BUCKET]
        return {**dict(zip(keys, partition_values(bucket.partition), strict=True)), BUCKET: str(bucket.number)}
