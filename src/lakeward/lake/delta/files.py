# SPDX-License-Identifier: Apache-2.0
"""Files of one Delta table: reading, deleting rows by vectors, listing, deleting, rewriting."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.lake.core.columnmap import COLUMN_IDS, ColumnMap, StoredColumn
from lakeward.lake.core.files import (
    Deletion,
    FolderFiles,
    MarkedFiles,
    RewrittenFiles,
    RowFiles,
    SnapshotFiles,
    WrittenFiles,
)
from lakeward.lake.core.rewrite import NewFiles, RankTable, rewrite_group, write_rows
from lakeward.lake.delta import lake_errors
from lakeward.lake.delta.columns import parse_schema_string, spell_view, table_schema
from lakeward.lake.delta.log import DeltaGround
from lakeward.lake.delta.meta.actions import MAPPING_KEY, AddFile, DeltaTableState
from lakeward.lake.delta.meta.features import WIDENING_KEY
from lakeward.lake.delta.meta.log import DeltaLog
from lakeward.lake.delta.meta.vector import Vector, vector_path, write_vectors
from lakeward.lake.delta.rows import DeltaFileRows
from lakeward.lake.delta.stats import prune
from lakeward.lake.delta.writer import (
    DeltaLakeWriter,
    DeltaWriteHandle,
    DeltaWriteResult,
    is_round_folder,
    round_folder,
)
from lakeward.lake.tablefiles import TableFiles
from lakeward.model import BUCKET, Bucket, OffsetRange, Offsets, OffsetSet, RoundId, SnapshotId, TableInfo
from lakeward.protocol.codec import Packed
from lakeward.spi import LakeDelete, LakeFile, RewriteResult, RewriteTask, StoredFile


class DeltaSnapshotFiles(SnapshotFiles[AddFile]):
    def __init__(self, log: DeltaLog, ground: DeltaGround, state: DeltaTableState, files: Sequence[AddFile]) -> None:
        self._log, self._keys, self.files = log, state.partition_keys, files
        self._is_changed = not {MAPPING_KEY, WIDENING_KEY}.isdisjoint(ground.properties)
        self._rows = _rows(log, pa.schema([]))

    def key(self, file: AddFile) -> str:
        return str(file.action["path"])

    def path(self, file: AddFile) -> str:
        return file.location(self._log.root)

    def bucket(self, file: AddFile) -> Bucket | None:
        return file.bucket(self._keys)

    def bounds(self, file: AddFile) -> OffsetRange | None:
        return file.offsets

    def rows(self, file: AddFile) -> int:
        return self._rows.count(file) + file.deleted

    def live_rows(self, file: AddFile) -> int:
        return self._rows.count(file)

    def size(self, file: AddFile) -> int:
        return file.size_bytes

    def offsets(self, file: AddFile) -> Offsets:
        return self._rows.offsets(file)

    def deleted(self, file: AddFile) -> OffsetSet:
        return self._rows.deleted(file)

    def delete_files(self) -> int:
        return len({vector_path(self._log.root, f.vector) for f in self.files if f.vector} - {None})

    def describe(self, file: AddFile) -> LakeFile:
        return LakeFile(
            path=self._log.files.check(self.path(file)),
            bucket=self.bucket(file),
            record_count=self.rows(file),
            size_bytes=file.size_bytes,
            offsets=file.offsets,
            sequence=file.since,
            deletes=deletes_of(file, self._log.root),
            partition=file.partition(self._keys),
            is_reader_needed=not file.is_whole or self._is_changed,
        )

    def read(self, files: Sequence[AddFile], schema: pa.Schema) -> Iterator[pa.Table]:
        rows = _rows(self._log, schema)
        return (live for file in files for _, live in rows.live(file, schema.names))

    def prune(self, files: Sequence[AddFile], filter: pc.Expression, schema: pa.Schema) -> Sequence[AddFile]:
        return prune(files, filter, schema)


class DeltaFiles(FolderFiles[DeltaGround], RowFiles[DeltaGround, AddFile]):
    errors = staticmethod(lake_errors)

    def __init__(self, log: DeltaLog, info: TableInfo) -> None:
        self._log, self._info, self.table, self.storage = log, info, log.table, log.files
        self.folder = self.data_folder = log.root

    def handle(self, ground: DeltaGround, round_id: RoundId) -> bytes:
        metadata, view = ground.state.metadata, None
        if COLUMN_IDS in ground.properties:
            view = spell_view(self._view(ground), metadata["schemaString"], self.table)
        return DeltaWriteHandle.of(self._log.root, metadata, view).to_bytes()

    def _view(self, ground: DeltaGround) -> list[StoredColumn]:
        stored = parse_schema_string(ground.state.metadata["schemaString"])
        return ColumnMap.parse(ground.properties).view(stored, self._info.schema)

    def prefix(self, round_id: RoundId) -> str:
        return f"{self._log.root}/{round_folder(round_id)}/"

    def at(self, ground: DeltaGround, snapshot_id: SnapshotId | None = None) -> DeltaSnapshotFiles:
        state = ground.state if snapshot_id is None else self._log.load(int(snapshot_id), ground.listing)
        return DeltaSnapshotFiles(self._log, ground, state, list(state.files.values()))

    def among(self, ground: DeltaGround, files: Sequence[AddFile]) -> DeltaSnapshotFiles:
        return DeltaSnapshotFiles(self._log, ground, ground.state, files)

    def schema(self, ground: DeltaGround) -> pa.Schema:
        return table_schema(self._view(ground))

    def parse_written(self, ground: DeltaGround, results: Sequence[bytes]) -> WrittenFiles[AddFile]:
        files = [f for data in results for f in DeltaWriteResult.from_bytes(data).files]
        return WrittenFiles(files=[f.with_since(ground.state.version + 1) for f in files])

    def parse_rewritten(self, ground: DeltaGround, result: RewriteResult) -> RewrittenFiles[AddFile]:
        group = DeltaRewrittenGroup.from_bytes(result.payload)
        age = max(f.sequence for f in result.group.files)
        return RewrittenFiles(files=[f.with_since(age) for f in group.files], ranks=group.ranks)

    def mark_deleted(
        self, ground: DeltaGround, round_id: RoundId, deletions: Sequence[Deletion[AddFile]]
    ) -> MarkedFiles[AddFile]:
        """Writes one file of vectors, each merged with the existing vector of its data file."""
        merged = {str(d.file.action["path"]): d.deleted.union(d.positions) for d in deletions}
        with lake_errors(self._log.table, "write vectors of"):
            vectors, size = write_vectors(self._log.files, self._log.root, round_folder(round_id), merged)
        version = ground.state.version + 1
        after = [d.file.with_vector(vectors[d.file.action["path"]], version) for d in deletions]
        return MarkedFiles(files=after, delete_files=1, bytes_written=size)

    def deleted_rows(self, file: LakeFile) -> OffsetSet:
        return _rows(self._log, pa.schema([])).deleted(add_of(file))

    def row_offsets(self, file: LakeFile) -> Offsets:
        return _rows(self._log, pa.schema([])).offsets(add_of(file))

    def list_files(self, prefix: str | None) -> Iterable[StoredFile]:
        """Lists files in rounds' folders. A prefix names one folder, or is the start of file names in it."""
        root = f"{self._log.root}/"
        folder = self._log.root if prefix is None else prefix.rpartition("/")[0]
        with lake_errors(self._log.table, "list files of"):
            ours = (f for f in self._log.files.walk(folder) if is_round_folder(f.path.removeprefix(root)))
            return [f for f in ours if prefix is None or f.path.startswith(prefix)]

    def delete(self, path: str) -> int:
        """Deletes a file, and the round's folder when it was its last file."""
        freed = super().delete(path)
        with suppress(OSError):
            if is_round_folder(path.removeprefix(f"{self._log.root}/")):
                os.rmdir(path.rpartition("/")[0])
        return freed


def _rows(log: DeltaLog, schema: pa.Schema) -> DeltaFileRows:
    return DeltaFileRows(log.files, log.root, log.table, schema)


_INLINE = "inline:"
"""Path of a vector that is stored in the log itself."""

_SAFE = "/:"


def deletes_of(file: AddFile, root: str) -> tuple[LakeDelete, ...]:
    vector = file.vector
    if vector is None:
        return ()
    return (
        LakeDelete(
            path=vector_path(root, vector) or f"{_INLINE}{vector['pathOrInlineDv']}",
            content="vector",
            record_count=file.deleted,
            sequence=file.vector_since,
            content_offset=vector.get("offset"),
            content_size=vector["sizeInBytes"],
        ),
    )


def add_of(file: LakeFile) -> AddFile:
    """Converts back to an action with the facts that reading needs: rows, vector, partition."""
    values = dict(file.partition)
    if file.bucket is not None:
        values[BUCKET] = str(file.bucket.number)
    vector = {"deletionVector": _vector(file.deletes[0])} if file.deletes else {}
    return AddFile({"path": quote(file.path, _SAFE), "size": file.size_bytes, "partitionValues": values, **vector})


def _vector(delete: LakeDelete) -> Vector:
    is_inline = delete.path.startswith(_INLINE)
    return {
        "storageType": "i" if is_inline else "p",
        "pathOrInlineDv": delete.path.removeprefix(_INLINE) if is_inline else quote(delete.path, _SAFE),
        "offset": delete.content_offset,
        "sizeInBytes": delete.content_size,
        "cardinality": delete.record_count,
    }


@dataclass(frozen=True)
class DeltaRewrittenGroup(Packed):
    """Files of a rewritten group. `result` None: no row of the group was live."""

    packed_as: ClassVar = ("delta-rewrite", 1)

    result: DeltaWriteResult | None
    ranks: tuple[RankTable, ...]

    @property
    def files(self) -> list[AddFile]:
        return [] if self.result is None else self.result.files


def rewrite(storage: TableFiles, task: RewriteTask, is_due: Callable[[], bool]) -> RewriteResult | None:
    handle = DeltaWriteHandle.from_bytes(task.handle)
    schema = table_schema(parse_schema_string(handle.schema))
    rows = DeltaFileRows(storage, handle.root, str(task.table.path), schema)

    def read(file: LakeFile) -> tuple[OffsetSet, Iterator[pa.Table]]:
        add = add_of(file)
        return rows.deleted(add), (live for _, live in rows.live(add, schema.names))

    def write(live: pa.Table | None, ranks: Sequence[RankTable]) -> NewFiles:
        data = None if live is None else write_rows(task, live, lambda t: DeltaLakeWriter(storage, t))
        result = None if data is None else DeltaWriteResult.from_bytes(data)
        group = DeltaRewrittenGroup(result, tuple(ranks))
        count, size = sum(f.records or 0 for f in group.files), sum(f.size_bytes for f in group.files)
        return NewFiles(group.to_bytes(), count, size)

    return rewrite_group(task, is_due, read, write)
