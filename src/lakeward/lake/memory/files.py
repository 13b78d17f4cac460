# SPDX-License-Identifier: Apache-2.0
"""Files of one memory table: reading, deleting rows by position, listing, rewriting."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from lakeward.lake.core.files import Deletion, MarkedFiles, RewrittenFiles, RowFiles, SnapshotFiles, WrittenFiles
from lakeward.lake.core.rewrite import NewFiles, RankTable, rewrite_group
from lakeward.lake.memory.log import MemoryGround
from lakeward.lake.memory.rows import (
    LiveFile,
    fit_by_id,
    live_files,
    live_rows_of,
    matching_keys,
    tag_columns,
    tagged_schema,
    view_columns,
)
from lakeward.lake.memory.table import DataFile, KeyDeletes, MemoryLake, PositionDeletes
from lakeward.lake.memory.writer import HANDLE_KIND, RESULT_KIND, VERSION
from lakeward.model import (
    OFFSET,
    Bucket,
    OffsetRange,
    Offsets,
    OffsetSet,
    RoundId,
    SnapshotId,
    TableInfo,
    pack,
    partition_values,
    unpack,
)
from lakeward.protocol.codec import Packed
from lakeward.spi import LakeDelete, LakeFile, RewriteResult, RewriteTask, StoredFile


@dataclass(frozen=True)
class RewrittenRows(Packed):
    """File of a rewritten group. `path` None: no row of the group was live."""

    packed_as: ClassVar = ("memory-rewrite", 2)

    path: str | None
    ranks: tuple[RankTable, ...]


class MemorySnapshotFiles(SnapshotFiles[LiveFile]):
    def __init__(self, info: TableInfo, files: Sequence[LiveFile]) -> None:
        self._info, self.files = info, files

    def path(self, file: LiveFile) -> str:
        return file.file.path

    def bucket(self, file: LiveFile) -> Bucket:
        return file.file.bucket

    def bounds(self, file: LiveFile) -> OffsetRange | None:
        offsets = self.offsets(file)
        return OffsetRange(int(offsets.min()), int(offsets.max()) + 1) if len(offsets) else None

    def rows(self, file: LiveFile) -> int:
        return int(file.file.rows.num_rows)

    def size(self, file: LiveFile) -> int:
        return file.file.size_bytes

    def offsets(self, file: LiveFile) -> Offsets:
        offsets: Offsets = file.file.rows.column(OFFSET).to_numpy()
        return offsets

    def deleted(self, file: LiveFile) -> OffsetSet:
        return _positions(d for _, d in file.deletes if isinstance(d, PositionDeletes))

    def dead(self, file: LiveFile) -> OffsetSet:
        return OffsetSet(np.flatnonzero(~file.live_mask()))

    def is_input(self, file: LiveFile, planned: LakeFile) -> bool:
        return file.sequence == planned.sequence

    def describe(self, file: LiveFile) -> LakeFile:
        bucket = self.bucket(file)
        return LakeFile(
            path=file.file.path,
            bucket=bucket,
            record_count=self.rows(file),
            size_bytes=self.size(file),
            offsets=self.bounds(file),
            sequence=file.sequence,
            deletes=tuple(_describe(d, sequence) for sequence, d in file.deletes),
            partition=dict(zip(self._info.descriptor.partition_keys, partition_values(bucket.partition), strict=True)),
        )

    def read(self, files: Sequence[LiveFile], schema: pa.Schema) -> Iterator[pa.Table]:
        return (fit_by_id(live_rows_of(f), schema) for f in files)


class MemoryFiles(RowFiles[MemoryGround, LiveFile]):
    def __init__(self, lake: MemoryLake, info: TableInfo) -> None:
        self._lake, self._info, self._path = lake, info, info.path

    def handle(self, ground: MemoryGround, round_id: RoundId) -> bytes:
        table = ground.table
        body = {
            "uuid": table.uuid,
            "prefix": self.prefix(round_id),
            "columns": {c.name: c.column_id for c in view_columns(table, self._info.schema)},
            "primary_key": list(self._info.descriptor.primary_key),
        }
        return pack(HANDLE_KIND, VERSION, body)

    def prefix(self, round_id: RoundId) -> str:
        return f"{self._lake.table(self._path).location}/data/{round_id}-"

    def at(self, ground: MemoryGround, snapshot_id: SnapshotId | None = None) -> MemorySnapshotFiles:
        snapshot = ground.head if snapshot_id is None else ground.snapshots[int(snapshot_id)]
        return MemorySnapshotFiles(self._info, [] if snapshot is None else live_files(ground.table, snapshot))

    def among(self, ground: MemoryGround, files: Sequence[LiveFile]) -> MemorySnapshotFiles:
        return MemorySnapshotFiles(self._info, files)

    def schema(self, ground: MemoryGround) -> pa.Schema:
        return tagged_schema(view_columns(ground.table, self._info.schema))

    def parse_written(self, ground: MemoryGround, results: Sequence[bytes]) -> WrittenFiles[LiveFile]:
        paths = [path for data in results for path in unpack(RESULT_KIND, VERSION, data)[1]["paths"]]
        files = [(path, ground.table.files.get(path)) for path in paths]
        beside = {path: file for path, file in files if not isinstance(file, DataFile)}
        return WrittenFiles(
            files=[LiveFile(file, 0) for _, file in files if isinstance(file, DataFile)],
            beside=list(beside),
            beside_bytes=sum(file.size_bytes for file in beside.values() if file is not None),
        )

    def parse_rewritten(self, ground: MemoryGround, result: RewriteResult) -> RewrittenFiles[LiveFile]:
        rows = RewrittenRows.from_bytes(result.payload)
        files = [] if rows.path is None else [LiveFile(ground.table.data_file(rows.path), result.group.sequence)]
        return RewrittenFiles(files=files, ranks=rows.ranks)

    def mark_deleted(
        self, ground: MemoryGround, round_id: RoundId, deletions: Sequence[Deletion[LiveFile]]
    ) -> MarkedFiles[LiveFile]:
        made = []
        for deletion in deletions:
            data = deletion.file.file
            deletes = PositionDeletes(
                path=f"{self.prefix(round_id)}{uuid.uuid4().hex}.positions",
                bucket=data.bucket,
                data_path=data.path,
                positions=deletion.positions,
                modified_at_ms=self._lake.clock.now_ms(),
            )
            ground.table.files[deletes.path] = deletes
            made.append(deletes)
        after = [replace(d.file, deletes=(*d.file.deletes, (0, m))) for d, m in zip(deletions, made, strict=True)]
        return MarkedFiles(files=after, delete_files=len(made), bytes_written=sum(m.size_bytes for m in made))

    def deleted_rows(self, file: LakeFile) -> OffsetSet:
        with self._lake.lock:
            named = [self._lake.table(self._path).files[d.path] for d in file.deletes]
        return _positions(d for d in named if isinstance(d, PositionDeletes))

    def row_offsets(self, file: LakeFile) -> Offsets:
        values: Offsets = self._lake.table(self._path).data_file(file.path).rows.column(OFFSET).to_numpy()
        return values

    def list_files(self, prefix: str | None) -> Iterable[StoredFile]:
        with self._lake.lock:
            table = self._lake.table(self._path)
            under = prefix if prefix is not None else f"{table.location}/data/"
            return [
                StoredFile(path=f.path, size_bytes=f.size_bytes, modified_at_ms=f.modified_at_ms)
                for path, f in sorted(table.files.items())
                if path.startswith(under)
            ]

    def delete(self, path: str) -> int:
        with self._lake.lock:
            file = self._lake.table(self._path).files.pop(path, None)
        return 0 if file is None else file.size_bytes


def rewrite(lake: MemoryLake, task: RewriteTask, is_due: Callable[[], bool]) -> RewriteResult | None:
    table = lake.table(task.table.path)
    columns = view_columns(table, task.table.schema)
    ids, schema = {c.name: c.column_id for c in columns}, tagged_schema(columns)

    def read(file: LakeFile) -> tuple[OffsetSet, Iterator[pa.Table]]:
        """Applies the deletes of the planned snapshot."""
        rows = table.data_file(file.path).rows
        keep = np.ones(rows.num_rows, np.bool_)
        for delete in (table.files[d.path] for d in file.deletes):
            if isinstance(delete, PositionDeletes):
                keep[delete.positions.values] = False
            elif not isinstance(delete, DataFile):
                keep &= ~matching_keys(rows, delete.keys)
        return OffsetSet(np.flatnonzero(~keep)), iter([fit_by_id(rows.filter(pa.array(keep)), schema)])

    def write(rows: pa.Table | None, ranks: Sequence[RankTable]) -> NewFiles:
        if rows is None or not rows.num_rows:
            return NewFiles(RewrittenRows(None, tuple(ranks)).to_bytes(), 0, 0)
        path = f"{table.location}/data/{task.round_id}-{uuid.uuid4().hex}.data"
        at = lake.clock.now_ms()
        table.files[path] = DataFile(
            path=path, bucket=task.group.bucket, rows=tag_columns(rows, ids), modified_at_ms=at
        )
        return NewFiles(RewrittenRows(path, tuple(ranks)).to_bytes(), rows.num_rows, rows.nbytes)

    return rewrite_group(task, is_due, read, write)


def _positions(deletes: Iterable[PositionDeletes]) -> OffsetSet:
    return OffsetSet(np.concatenate([np.empty(0, np.int64), *(d.positions.values for d in deletes)]))


def _describe(delete: PositionDeletes | KeyDeletes, sequence: int) -> LakeDelete:
    if isinstance(delete, PositionDeletes):
        return LakeDelete(path=delete.path, content="positions", record_count=len(delete.positions), sequence=sequence)
    return LakeDelete(
        path=delete.path,
        content="equality",
        record_count=delete.keys.num_rows,
        sequence=sequence,
        equality_columns=tuple(delete.keys.column_names),
    )
