# SPDX-License-Identifier: Apache-2.0
"""A whole lake format on `lake/core`: a folder of Parquet files, and a JSON file for each version that says all of the
table. Creating the next version's file is the compare-and-swap. It passes the contract suite.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.errors import LakeTableGone
from lakeward.lake.core.catalog import HISTORY, WarehouseCatalog
from lakeward.lake.core.change import RowFileChange
from lakeward.lake.core.columns import fit_rows
from lakeward.lake.core.failures import lake_errors
from lakeward.lake.core.files import (
    Deletion,
    FolderFiles,
    MarkedFiles,
    RewrittenFiles,
    RowFiles,
    SnapshotFiles,
    WrittenFiles,
)
from lakeward.lake.core.history import LogSnapshot, OwnCommit
from lakeward.lake.core.log import VersionRequest
from lakeward.lake.core.rewrite import NewFiles, RankTable, rewrite_group, write_rows
from lakeward.lake.core.storage import PositionStorage
from lakeward.lake.core.table import PositionTable
from lakeward.lake.core.versionlog import ManifestLog
from lakeward.lake.core.writer import CoreWriter, ParquetDataFile
from lakeward.lake.memory.plugin import CAPABILITIES
from lakeward.lake.tablefiles import LocalFiles
from lakeward.lake.warehouse import Warehouse
from lakeward.model import (
    LAKE_FIELDS,
    OFFSET,
    Column,
    OffsetRange,
    Offsets,
    OffsetSet,
    RoundId,
    SnapshotId,
    TableInfo,
    TablePath,
    parse_type,
    to_arrow_schema,
)
from lakeward.protocol.codec import Packed, decode, encode
from lakeward.spi import DeleteEncoding, LakeDelete, LakeFile, RewriteResult, RewriteTask, WriteTask

STORAGE, ERRORS, VERSION = LocalFiles(), lake_errors("toy"), "toy.version"


@dataclass(frozen=True)
class ToyVersion:
    """`snapshot`: the newest version that changed rows. `own`: keys of our newest commit that it stands on, `newest`
    of the one that landed last."""

    number: int
    at_ms: int
    operation: str
    columns: tuple[tuple[str, str], ...]
    layout: dict[str, str]
    properties: dict[str, str]
    files: tuple[LakeFile, ...] = ()
    expired: tuple[int, ...] = ()
    keys: dict[str, str] | None = None
    own: dict[str, str] | None = None
    newest: dict[str, str] | None = None
    snapshot: int | None = None

    @property
    def schema(self) -> pa.Schema:
        columns = [Column(name=name, type=parse_type(kind)) for name, kind in self.columns]
        return pa.schema([*to_arrow_schema(columns), *LAKE_FIELDS])


@dataclass(frozen=True)
class ToyGround:
    versions: tuple[int, ...]
    now: ToyVersion

    @property
    def head_id(self) -> SnapshotId | None:
        return None if self.now.snapshot is None else SnapshotId(str(self.now.snapshot))

    @property
    def expired(self) -> frozenset[int]:
        return frozenset(self.now.expired).intersection(self.versions)

    @property
    def properties(self) -> dict[str, str]:
        return self.now.properties


class ToyLog(ManifestLog[ToyGround, RowFileChange[LakeFile]]):
    lake, kind, ground_type = "toy", "toy", ToyGround

    def __init__(self, folder: str, table: str) -> None:
        self.folder, self.table = folder, table

    def path(self, version: int) -> str:
        return f"{self.folder}/log/{version}.json"

    def versions(self) -> tuple[int, ...]:
        names = STORAGE.names(f"{self.folder}/log")
        return tuple(sorted(int(n.removesuffix(".json")) for n in names if not n.startswith(".")))

    def read(self, version: int) -> ToyVersion:
        text = STORAGE.read(self.path(version))
        if text is None:
            raise self.gone(version)
        return decode(ToyVersion, json.loads(text))

    def create(self, version: ToyVersion) -> bool:
        """A late one may come to a place that was cleaned: then the version it stands on is missing."""
        if not STORAGE.put_exclusively(self.path(version.number), json.dumps(encode(version))):
            return False
        if version.number == 0 or version.number - 1 in self.versions():
            return True
        STORAGE.delete(self.path(version.number))
        return False

    def next(self, now: ToyVersion, **change: Any) -> bool:
        return self.create(replace(now, **{"number": now.number + 1, "at_ms": self.now_ms(), "keys": None, **change}))

    def load(self) -> ToyGround:
        if not (versions := self.versions()):
            raise LakeTableGone(table=self.table)
        return ToyGround(versions, self.read(versions[-1]))

    def describe(self, version: int) -> LogSnapshot:
        read = self.read(version)
        return LogSnapshot(
            snapshot_id=SnapshotId(str(version)),
            parent_id=SnapshotId(str(version - 1)),
            committed_at_ms=read.at_ms,
            operation=read.operation,
            sequence=version,
            keys=read.keys or {},
            removes_rows=read.operation == "delete",
        )

    def is_snapshot(self, version: int) -> bool:
        return self.read(version).snapshot == version

    def newest_own(self, ground: ToyGround) -> OwnCommit | None:
        return _own(ground.now.newest)

    def own_at(self, ground: ToyGround, snapshot_id: SnapshotId) -> OwnCommit | None:
        return _own(self.read(int(snapshot_id)).own)

    def encode_change(self, ground: ToyGround, change: RowFileChange[LakeFile]) -> Mapping[str, Any]:
        out = {f.path for f in change.removed} | {old.path for old, _ in change.changed}
        files = [f for f in ground.now.files if f.path not in out]
        new = [*files, *(new for _, new in change.changed), *change.added]
        return {"files": encode(tuple(new)), "operation": change.kind}

    def put(self, request: VersionRequest, expired: Sequence[int]) -> bool:
        now, number, keys = self.read(request.head), request.head + 1, dict(request.keys)
        files, own = tuple(decode(LakeFile, f) for f in request.change["files"]), {**keys, VERSION: str(number)}
        change = {"files": files, "operation": request.change["operation"], "expired": tuple(expired)}
        return self.next(now, keys=keys, own=own, newest=own, snapshot=number, **change)

    def put_expired(self, ground: ToyGround, expired: Sequence[int]) -> bool:
        return self.next(ground.now, expired=tuple(expired))

    def paths(self, version: int) -> Collection[str]:
        files = self.read(version).files
        return {path for f in files for path in (f.path, *(d.path for d in f.deletes))}


def _own(keys: dict[str, str] | None) -> OwnCommit | None:
    return None if keys is None else OwnCommit(SnapshotId(keys[VERSION]), keys)


class ToySnapshotFiles(SnapshotFiles[LakeFile]):
    def __init__(self, files: Sequence[LakeFile]) -> None:
        self.files = files

    def describe(self, file: LakeFile) -> LakeFile:
        return file

    def offsets(self, file: LakeFile) -> Offsets:
        return np.asarray(pq.read_table(file.path, columns=[OFFSET]).column(0).to_numpy(), np.int64)

    def deleted(self, file: LakeFile) -> OffsetSet:
        positions = [json.loads(STORAGE.read(d.path) or "[]") for d in file.deletes]
        return OffsetSet(np.asarray([p for part in positions for p in part], np.int64))

    def read(self, files: Sequence[LakeFile], schema: pa.Schema) -> Iterator[pa.Table]:
        for file in files:
            rows = pq.read_table(file.path)
            yield fit_rows(rows.filter(pa.array(~self.deleted(file).mask(np.arange(rows.num_rows)))), schema)


@dataclass(frozen=True)
class ToyHandle(Packed):
    packed_as: ClassVar = ("toy-handle", 1)

    prefix: str
    schema: bytes
    age: int

    @property
    def arrow_schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self.schema))


@dataclass(frozen=True)
class ToyWritten(Packed):
    packed_as: ClassVar = ("toy-written", 1)

    files: tuple[LakeFile, ...]
    ranks: tuple[RankTable, ...] = ()


class ToyWriter(CoreWriter[ParquetDataFile]):
    def __init__(self, task: WriteTask) -> None:
        self._handle, self._files = ToyHandle.from_bytes(task.handle), list[LakeFile]()
        keys = task.table.descriptor.partition_keys
        super().__init__("toy", ERRORS, task, self._handle.arrow_schema, 1 << 30, keys)

    def open_output(self, first: pa.Table) -> ParquetDataFile:
        return ParquetDataFile(STORAGE, f"{self._handle.prefix}{self.file_name()}.parquet", self._schema)

    def note(self, output: ParquetDataFile) -> None:
        offsets = pq.read_table(output.path, columns=[OFFSET]).column(0).to_numpy()
        self._files.append(
            LakeFile(
                path=output.path,
                bucket=self._task.split.bucket,
                record_count=output.rows,
                size_bytes=output.size,
                offsets=OffsetRange(int(offsets[0]), int(offsets[-1]) + 1),
                sequence=self._handle.age,
                partition={k: v for k, v in self._values.items() if not k.startswith("__")},
                is_reader_needed=True,
            )
        )

    def result(self) -> bytes | None:
        return ToyWritten(tuple(self._files)).to_bytes() if self._files else None


class ToyFiles(FolderFiles[ToyGround], RowFiles[ToyGround, LakeFile]):
    storage, errors = STORAGE, staticmethod(ERRORS)

    def __init__(self, log: ToyLog) -> None:
        self._log, self.table, self.folder, self.data_folder = log, log.table, log.folder, f"{log.folder}/data"

    def handle(self, ground: ToyGround, round_id: RoundId) -> bytes:
        schema = ground.now.schema.serialize().to_pybytes()
        return ToyHandle(self.prefix(round_id), schema, ground.now.number + 1).to_bytes()

    def prefix(self, round_id: RoundId) -> str:
        return f"{self.data_folder}/{round_id}-"

    def at(self, ground: ToyGround, snapshot_id: SnapshotId | None = None) -> ToySnapshotFiles:
        return ToySnapshotFiles((ground.now if snapshot_id is None else self._log.read(int(snapshot_id))).files)

    def among(self, ground: ToyGround, files: Sequence[LakeFile]) -> ToySnapshotFiles:
        return ToySnapshotFiles(files)

    def schema(self, ground: ToyGround) -> pa.Schema:
        return ground.now.schema

    def parse_written(self, ground: ToyGround, results: Sequence[bytes]) -> WrittenFiles[LakeFile]:
        return WrittenFiles(files=[f for data in results for f in ToyWritten.from_bytes(data).files])

    def parse_rewritten(self, ground: ToyGround, result: RewriteResult) -> RewrittenFiles[LakeFile]:
        new, age = ToyWritten.from_bytes(result.payload), max(f.sequence for f in result.group.files)
        return RewrittenFiles(files=[replace(f, sequence=age) for f in new.files], ranks=new.ranks)

    def mark_deleted(
        self, ground: ToyGround, round_id: RoundId, deletions: Sequence[Deletion[LakeFile]]
    ) -> MarkedFiles[LakeFile]:
        after, size = [], 0
        for deletion in deletions:
            both = deletion.deleted.union(deletion.positions)
            path, text = f"{self.prefix(round_id)}{uuid.uuid4().hex}.deletes", json.dumps(both.values.tolist())
            STORAGE.put(path, text)
            deletes = LakeDelete(path=path, content="vector", record_count=len(both), sequence=ground.now.number + 1)
            after.append(replace(deletion.file, deletes=(deletes,)))
            size += len(text)
        return MarkedFiles(files=after, delete_files=len(after), bytes_written=size)

    def deleted_rows(self, file: LakeFile) -> OffsetSet:
        return ToySnapshotFiles([file]).deleted(file)

    def deleted_offsets(self, file: LakeFile) -> OffsetSet:
        files = ToySnapshotFiles([file])
        return OffsetSet(files.offsets(file)[files.deleted(file).values])


class ToyCatalog(WarehouseCatalog[ToyGround]):
    lake, allowed = "toy", HISTORY

    def open_log(self, path: TablePath) -> ToyLog:
        return ToyLog(self.location(path), str(path))

    def exists(self, path: TablePath) -> bool:
        return bool(self.open_log(path).versions())

    def columns(self, ground: ToyGround) -> Sequence[Column]:
        return [Column(name=name, type=parse_type(kind)) for name, kind in ground.now.columns]

    def properties(self, ground: ToyGround) -> Mapping[str, str]:
        return ground.properties

    def layout(self, ground: ToyGround) -> Mapping[str, str]:
        return ground.now.layout

    def make(self, table: TableInfo, properties: Mapping[str, str]) -> bool:
        log, layout = self.open_log(table.path), dict(self.expected_layout(table.descriptor))
        columns = _spelled(table.descriptor.schema.columns)
        return log.create(ToyVersion(0, log.now_ms(), "create", columns, layout, dict(properties)))

    def put_columns(self, ground: ToyGround, table: TableInfo, columns: Sequence[Column]) -> bool:
        return self.open_log(table.path).next(ground.now, columns=(*ground.now.columns, *_spelled(columns)))

    def put_properties(self, ground: ToyGround, table: TableInfo, changes: Mapping[str, str | None]) -> bool:
        properties = {k: v for k, v in {**ground.properties, **changes}.items() if v is not None}
        return self.open_log(table.path).next(ground.now, properties=properties)


def _spelled(columns: Sequence[Column]) -> tuple[tuple[str, str], ...]:
    return tuple((c.name, str(c.type)) for c in columns)


class ToyStorage(PositionStorage[ToyGround]):
    name = "toy"
    capabilities = replace(CAPABILITIES, delete_encodings=frozenset({DeleteEncoding.POSITIONS}))

    def __init__(self, folder: str) -> None:
        self._catalog = ToyCatalog(Warehouse("toy", folder))

    def catalog(self) -> ToyCatalog:
        return self._catalog

    def open_table(self, table: TableInfo) -> PositionTable[ToyGround]:
        log = self._catalog.open_log(table.path)
        return PositionTable.of(table, log, ToyFiles(log))

    def open_writer(self, task: WriteTask) -> ToyWriter:
        return ToyWriter(task)

    def rewrite(self, task: RewriteTask, is_due: Callable[[], bool] = lambda: False) -> RewriteResult | None:
        schema = ToyHandle.from_bytes(task.handle).arrow_schema

        def read(file: LakeFile) -> tuple[OffsetSet, Iterator[pa.Table]]:
            files = ToySnapshotFiles([file])
            return files.deleted(file), files.read([file], schema)

        def write(rows: pa.Table | None, ranks: Sequence[RankTable]) -> NewFiles:
            data = None if rows is None else write_rows(task, rows, ToyWriter)
            files = () if data is None else ToyWritten.from_bytes(data).files
            count, size = sum(f.record_count for f in files), sum(f.size_bytes for f in files)
            return NewFiles(ToyWritten(files, tuple(ranks)).to_bytes(), count, size)

        return rewrite_group(task, is_due, read, write)


def load(options: Mapping[str, str]) -> ToyStorage:
    return ToyStorage(options["folder"])
