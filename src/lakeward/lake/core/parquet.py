# SPDX-License-Identifier: Apache-2.0
"""Files of a format that keeps Parquet files in a folder, and one file of deleted positions per data file with deleted
rows. Its log lists them as `LakeFile`.
"""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Generic

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.lake.core.columns import fit_rows, keep_rows
from lakeward.lake.core.failures import LakeErrors, lake_errors
from lakeward.lake.core.files import (
    Deletion,
    FolderFiles,
    G,
    MarkedFiles,
    RewrittenFiles,
    RowFiles,
    SnapshotFiles,
    WrittenFiles,
)
from lakeward.lake.core.rewrite import NewFiles, RankTable, rewrite_group, write_rows
from lakeward.lake.core.writer import CoreWriter, ParquetDataFile
from lakeward.lake.tablefiles import TableFiles
from lakeward.model import OFFSET, OffsetRange, Offsets, OffsetSet, RoundId, SnapshotId
from lakeward.protocol.codec import Packed
from lakeward.spi import LakeDelete, LakeFile, RewriteResult, RewriteTask, WriteTask

_BATCH_ROWS = 65_536
_TARGET_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True)
class ParquetHandle(Packed):
    """Facts for writers. `age`: the number of the commit that will add the files."""

    packed_as: ClassVar = ("parquet-handle", 1)

    prefix: str
    schema: bytes
    age: int

    @property
    def arrow_schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self.schema))


@dataclass(frozen=True)
class ParquetFileList(Packed):
    """Files that a writer wrote for a split, or an executor for a group."""

    packed_as: ClassVar = ("parquet-files", 1)

    files: tuple[LakeFile, ...]
    ranks: tuple[RankTable, ...] = ()


class ParquetLakeWriter(CoreWriter[ParquetDataFile]):
    def __init__(self, lake: str, storage: TableFiles, task: WriteTask) -> None:
        self._handle, self._storage, self._files = ParquetHandle.from_bytes(task.handle), storage, list[LakeFile]()
        keys = task.table.descriptor.partition_keys
        super().__init__(lake, lake_errors(lake), task, self._handle.arrow_schema, _TARGET_BYTES, keys)

    def open_output(self, first: pa.Table) -> ParquetDataFile:
        return ParquetDataFile(self._storage, f"{self._handle.prefix}{self.file_name()}.parquet", self._schema)

    def note(self, output: ParquetDataFile) -> None:
        groups = [output.metadata.row_group(n) for n in range(output.metadata.num_row_groups)]
        columns = [g.column(n) for g in groups for n in range(g.num_columns)]
        statistics = [c.statistics for c in columns if c.path_in_schema == OFFSET]
        file = LakeFile(
            path=output.path,
            bucket=self._task.split.bucket,
            record_count=output.rows,
            size_bytes=output.size,
            offsets=OffsetRange(min(s.min for s in statistics), max(s.max for s in statistics) + 1),
            sequence=self._handle.age,
            partition={k: v for k, v in self._values.items() if not k.startswith("__")},
            is_reader_needed=True,
        )
        self._files.append(file)

    def result(self) -> bytes | None:
        return ParquetFileList(tuple(self._files)).to_bytes() if self._files else None


class ParquetSnapshotFiles(SnapshotFiles[LakeFile]):
    def __init__(self, storage: TableFiles, errors: LakeErrors, table: str, files: Sequence[LakeFile]) -> None:
        self._storage, self._errors, self._table, self.files = storage, errors, table, files

    def describe(self, file: LakeFile) -> LakeFile:
        return file

    def offsets(self, file: LakeFile) -> Offsets:
        with self._errors(self._table, "read a file of"), self._storage.open_input(file.path) as source:
            return np.asarray(pq.read_table(source, columns=[OFFSET]).column(0).to_numpy(), np.int64)

    def deleted(self, file: LakeFile) -> OffsetSet:
        with self._errors(self._table, "read deleted rows of"):
            parts = [self._storage.read_bytes(d.path) for d in file.deletes]
            if None in parts:
                raise FileNotFoundError(file.deletes[parts.index(None)].path)
        return OffsetSet(np.concatenate([np.empty(0, np.int64), *(OffsetSet.from_bytes(p).values for p in parts if p)]))

    def read(self, files: Sequence[LakeFile], schema: pa.Schema) -> Iterator[pa.Table]:
        for file in files:
            deleted, start = self.deleted(file), 0
            with self._errors(self._table, "read a file of"), self._storage.open_input(file.path) as source:
                parquet = pq.ParquetFile(source)
                present = [n for n in schema.names if n in parquet.schema_arrow.names]
                for batch in parquet.iter_batches(_BATCH_ROWS, columns=present, use_threads=False):
                    keep = ~deleted.mask(np.arange(start, start + batch.num_rows, dtype=np.int64))
                    start += batch.num_rows
                    yield keep_rows(fit_rows(pa.Table.from_batches([batch]), schema), keep)


class ParquetFiles(FolderFiles[G], RowFiles[G, LakeFile], Generic[G]):
    def __init__(self, lake: str, storage: TableFiles, folder: str, table: str) -> None:
        self.storage, self.folder, self.table, self.errors = storage, folder, table, lake_errors(lake)
        self.data_folder = f"{folder}/data"

    @abstractmethod
    def files_at(self, ground: G, snapshot_id: SnapshotId | None) -> Sequence[LakeFile]:
        """Returns the files of a snapshot; None: of the ground's own."""

    @abstractmethod
    def age(self, ground: G) -> int:
        """Returns the number of the next commit, which is the sequence of its files."""

    def handle(self, ground: G, round_id: RoundId) -> bytes:
        schema = self.schema(ground).serialize().to_pybytes()
        return ParquetHandle(self.prefix(round_id), schema, self.age(ground)).to_bytes()

    def prefix(self, round_id: RoundId) -> str:
        return f"{self.data_folder}/{round_id}-"

    def at(self, ground: G, snapshot_id: SnapshotId | None = None) -> ParquetSnapshotFiles:
        return self.among(ground, self.files_at(ground, snapshot_id))

    def among(self, ground: G, files: Sequence[LakeFile]) -> ParquetSnapshotFiles:
        return self._open(files)

    def parse_written(self, ground: G, results: Sequence[bytes]) -> WrittenFiles[LakeFile]:
        return WrittenFiles(files=[f for data in results for f in ParquetFileList.from_bytes(data).files])

    def parse_rewritten(self, ground: G, result: RewriteResult) -> RewrittenFiles[LakeFile]:
        new, age = ParquetFileList.from_bytes(result.payload), max(f.sequence for f in result.group.files)
        return RewrittenFiles(files=[replace(f, sequence=age) for f in new.files], ranks=new.ranks)

    def mark_deleted(
        self, ground: G, round_id: RoundId, deletions: Sequence[Deletion[LakeFile]]
    ) -> MarkedFiles[LakeFile]:
        after, size = [], 0
        for deletion in deletions:
            both = deletion.deleted.union(deletion.positions)
            path, data = f"{self.prefix(round_id)}{uuid.uuid4().hex}.deleted", both.to_bytes()
            with self.errors(self.table, "write deleted rows of"):
                self.storage.put(path, data)
            deleted = LakeDelete(path=path, content="vector", record_count=len(both), sequence=self.age(ground))
            after.append(replace(deletion.file, deletes=(deleted,)))
            size += len(data)
        return MarkedFiles(files=after, delete_files=len(after), bytes_written=size)

    def deleted_rows(self, file: LakeFile) -> OffsetSet:
        return self._open([file]).deleted(file)

    def row_offsets(self, file: LakeFile) -> Offsets:
        return self._open([file]).offsets(file)

    def _open(self, files: Sequence[LakeFile]) -> ParquetSnapshotFiles:
        return ParquetSnapshotFiles(self.storage, self.errors, self.table, files)


def rewrite_parquet(
    lake: str, storage: TableFiles, task: RewriteTask, is_due: Callable[[], bool]
) -> RewriteResult | None:
    """Rewrites a group of a table with `ParquetFiles`, in an executor."""
    schema, table = ParquetHandle.from_bytes(task.handle).arrow_schema, str(task.table.path)
    files = ParquetSnapshotFiles(storage, lake_errors(lake), table, task.group.files)

    def write(rows: pa.Table | None, ranks: Sequence[RankTable]) -> NewFiles:
        data = None if rows is None else write_rows(task, rows, lambda t: ParquetLakeWriter(lake, storage, t))
        new = () if data is None else ParquetFileList.from_bytes(data).files
        payload = ParquetFileList(new, tuple(ranks)).to_bytes()
        return NewFiles(payload, sum(f.record_count for f in new), sum(f.size_bytes for f in new))

    return rewrite_group(task, is_due, lambda f: (files.deleted(f), files.read([f], schema)), write)
