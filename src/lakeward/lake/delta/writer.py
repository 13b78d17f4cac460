# SPDX-License-Identifier: Apache-2.0
"""Writes one split: Arrow batches in, data files of bounded size out, one row group in memory."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.errors import LakeSchemaBroken
from lakeward.lake.delta.actions import AddFile
from lakeward.lake.delta.columns import file_schema, parse_schema_string, table_schema
from lakeward.lake.delta.durable import lake_errors, sync_file
from lakeward.lake.delta.stats import file_stats
from lakeward.model.bucket import partition_values
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId
from lakeward.model.schema import BUCKET
from lakeward.protocol.packed import Packed
from lakeward.spi.lake import LakeWriter, WriteTask

_ROW_GROUP_BYTES, _ROW_GROUP_ROWS = 64 * 1024 * 1024, 1_048_576
"""Of Arrow: what a writer holds. 10 to 20 MB of Parquet, large enough for every reader."""

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
    def of(cls, root: Path, metadata: dict[str, Any]) -> DeltaWriteHandle:
        target = (metadata.get("configuration") or {}).get(_TARGET_KEY, "")
        size = int(target) if target.isdigit() else _TARGET_BYTES
        return cls(str(root), metadata["schemaString"], tuple(metadata["partitionColumns"]), size)


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
    def __init__(self, task: WriteTask) -> None:
        self._task = task
        self._handle = handle = DeltaWriteHandle.from_bytes(task.handle)
        whole = table_schema(parse_schema_string(handle.schema))
        self._schema = file_schema(whole, handle.partition_columns)
        self._folder = Path(handle.root) / round_folder(task.round_id)
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._output: pq.ParquetWriter | None = None
        self._path = Path()
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
        if self._output is not None:
            self._output.close()
            self._output = None

    def _flush(self) -> None:
        """Pending rows become a row group; a file that has reached its size is closed."""
        if not self._pending:
            return
        table = self._conform(pa.Table.from_batches(self._pending))
        self._pending, self._pending_bytes = [], 0
        with lake_errors(str(self._task.table.path), "write a file of"):
            if self._output is None:
                self._open()
            assert self._output is not None
            fault_point("lake.before-row-group", path=str(self._path))
            self._output.write_table(table, row_group_size=table.num_rows)
            if self._path.stat().st_size >= self._handle.target_bytes:
                self._close_file()

    def _open(self) -> None:
        split = self._task.split
        name = f"{split.bucket.number}-{split.index}-{split.start}-{self._task.attempt}-{uuid.uuid4().hex}.parquet"
        self._folder.mkdir(exist_ok=True)
        self._path = self._folder / name
        self._output = pq.ParquetWriter(
            self._path,
            self._schema,
            compression="zstd",
            store_schema=False,  # with ARROW:schema other readers take large_string and fail
            store_decimal_as_integer=True,
        )

    def _conform(self, table: pa.Table) -> pa.Table:
        """Columns as the lake table has them: by name, cast, a newer lake column filled with nulls."""
        names, arrays = set(table.column_names), []
        for field in self._schema:
            if field.name in names:
                column = table.column(field.name)
                arrays.append(column if column.type == field.type else column.cast(field.type))
            elif field.nullable:
                arrays.append(pa.nulls(table.num_rows, field.type))
            else:
                raise LakeSchemaBroken(table=str(self._task.table.path), diff=f"the batch has no column {field.name}")
        lost = names - {*self._schema.names, *self._handle.partition_columns}
        if lost:
            diff = f"the lake table has no column {', '.join(sorted(lost))}"
            raise LakeSchemaBroken(table=str(self._task.table.path), diff=diff)
        return pa.Table.from_arrays(arrays, schema=self._schema)

    def _close_file(self) -> None:
        assert self._output is not None
        with lake_errors(str(self._task.table.path), "close a file of"):
            self._output.close()
            sync_file(self._path)
            size = self._path.stat().st_size
        self._actions.append(
            {
                "path": f"{self._folder.name}/{self._path.name}",
                "partitionValues": self._partition(),
                "size": size,
                "modificationTime": int(time.time() * 1000),
                "dataChange": True,
                "stats": file_stats(self._output.writer.metadata),
            }
        )
        self._output = None
        fault_point("lake.after-file", path=str(self._path))

    def _partition(self) -> dict[str, str]:
        bucket = self._task.split.bucket
        keys = [c for c in self._handle.partition_columns if c != BUCKET]
        return {**dict(zip(keys, partition_values(bucket.partition), strict=True)), BUCKET: str(bucket.number)}
