# SPDX-License-Identifier: Apache-2.0
"""A whole lake format on `lake/core`: a folder of Parquet files, and a JSON file for each version that says all of the
table. Creating the next version's file is the compare-and-swap. It passes the contract suite.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.errors import LakeTableGone
from lakeward.lake.core.catalog import CoreCatalog
from lakeward.lake.core.change import RowFileChange
from lakeward.lake.core.columns import conform, fit_rows
from lakeward.lake.core.files import Deletion, MarkedFiles, RewrittenFiles, RowFiles, SnapshotFiles, WrittenFiles
from lakeward.lake.core.history import LogSnapshot, OwnCommit, OwnHistory
from lakeward.lake.core.historylimit import HistoryLimit
from lakeward.lake.core.log import HeadMoved, SnapshotLog, VersionRequest
from lakeward.lake.core.rewrite import NewFiles, rewrite_group, write_rows
from lakeward.lake.core.storage import PositionStorage
from lakeward.lake.core.table import PositionTable
from lakeward.lake.encoding import RowEncoding
from lakeward.lake.memory.plugin import CAPABILITIES
from lakeward.lake.ranks import RankTable
from lakeward.lake.tablefiles import LocalFiles
from lakeward.model.arrow import to_arrow_schema
from lakeward.model.bucket import Bucket, partition_values
from lakeward.model.expiry import ExpiringSnapshot
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId, SnapshotId
from lakeward.model.offsets import OffsetRange
from lakeward.model.offsetset import Offsets, OffsetSet
from lakeward.model.round import LakeBase
from lakeward.model.schema import BUCKET, OFFSET, Column
from lakeward.model.sqltype import parse_type
from lakeward.model.systemcolumns import LAKE_FIELDS
from lakeward.model.table import TableDescriptor, TableInfo, TablePath
from lakeward.protocol.packed import Packed
from lakeward.spi.capabilities import DeleteEncoding
from lakeward.spi.lake.writer import LakeWriter, WriteTask
from lakeward.spi.lakefile import LakeDelete, LakeFile, StoredFile
from lakeward.spi.rewrite import RewriteResult, RewriteTask

STORAGE = LocalFiles()


@dataclass(frozen=True)
class ToyFile:
    path: str
    bucket: str
    rows: int
    size: int
    first: int
    last: int
    since: int = 0
    deletes: str = ""
    deleted: int = 0


@dataclass(frozen=True)
class ToyVersion:
    """`own`: our newest commit that it stands on, `newest` wherever it is: [version, keys]. `altered`: no snapshot."""

    number: int
    at_ms: int
    operation: str
    columns: list[list[str]]
    layout: dict[str, str]
    properties: dict[str, str]
    files: list[dict[str, Any]]
    expired: list[int]
    keys: dict[str, str]
    own: list[Any]
    newest: list[Any]
    altered: bool = False


@dataclass(frozen=True)
class ToyGround:
    numbers: tuple[int, ...]
    now: ToyVersion
    head_id: SnapshotId | None


class ToyLog(SnapshotLog[ToyGround, RowFileChange[ToyFile], VersionRequest]):
    lake, ground_type = "toy", ToyGround

    def __init__(self, root: str, table: str) -> None:
        self.root, self.table = root, table

    def numbers(self) -> tuple[int, ...]:
        names = STORAGE.names(f"{self.root}/log")
        return tuple(sorted(int(n.removesuffix(".json")) for n in names if not n.startswith(".")))

    def read(self, number: int) -> ToyVersion:
        text = STORAGE.read(f"{self.root}/log/{number}.json")
        if text is None:
            raise self.gone(number)
        return ToyVersion(**json.loads(text))

    def put(self, version: ToyVersion) -> bool:
        """A late one may come to a place that was cleaned: then what it stands on is gone."""
        path = f"{self.root}/log/{version.number}.json"
        if not STORAGE.put_exclusively(path, json.dumps(asdict(version))):
            return False
        if version.number == 0 or version.number - 1 in self.numbers():
            return True
        STORAGE.delete(path)
        return False

    def next(self, ground: ToyGround, **change: Any) -> bool:
        own = {"number": ground.now.number + 1, "at_ms": self.now_ms(), "keys": {}, "altered": True}
        return self.put(replace(ground.now, **{**own, **change}))

    def load(self) -> ToyGround:
        numbers = self.numbers()
        if not numbers:
            raise LakeTableGone(table=self.table)
        snapshots = (v for v in map(self.read, reversed(numbers)) if not v.altered)
        head = next(snapshots, None)
        return ToyGround(numbers, self.read(numbers[-1]), None if head is None else SnapshotId(str(head.number)))

    def newest_first(self, ground: ToyGround, *, with_expired: bool = False) -> Iterator[LogSnapshot]:
        for number in reversed(ground.numbers):
            version = self.read(number)
            if not version.altered and (with_expired or number not in ground.now.expired):
                yield LogSnapshot(
                    snapshot_id=SnapshotId(str(number)),
                    parent_id=SnapshotId(str(number - 1)),
                    committed_at_ms=version.at_ms,
                    operation=version.operation,
                    sequence=number,
                    keys=version.keys,
                    removes_rows=version.operation == "delete",
                )

    def own_history(self, ground: ToyGround) -> OwnHistory:
        own, newest = _own(ground.now.own), _own(ground.now.newest)
        counted = tuple(c.keys for c in (own, newest) if c is not None)
        return OwnHistory(newest=newest, stands_on=own, is_rolled_back=own != newest, counted=counted)

    def own_at(self, ground: ToyGround, snapshot_id: SnapshotId) -> OwnCommit | None:
        return _own(self.read(int(snapshot_id)).own)

    def encode(
        self, ground: ToyGround, round_id: RoundId, keys: Mapping[str, str], change: RowFileChange[ToyFile]
    ) -> bytes:
        out = {f.path for f in change.removed} | {old.path for old, _ in change.changed}
        files = [f for f in ground.now.files if f["path"] not in out]
        files += [asdict(f) for f in (*(new for _, new in change.changed), *change.added)]
        body = {"files": files, "operation": change.kind}
        return VersionRequest(ground.now.number, round_id, keys, frozenset(ground.now.expired), body).to_bytes("toy")

    def parse(self, payload: bytes) -> VersionRequest:
        return VersionRequest.from_bytes("toy", payload)

    def append(self, request: VersionRequest, base: LakeBase, expire: Collection[SnapshotId]) -> LogSnapshot:
        number, ground = request.head + 1, self.load()
        own = [number, dict(request.keys)]
        expired = request.expired_with(expire, base.head)
        change = dict(request.change, expired=expired, keys=dict(request.keys), own=own, newest=own, altered=False)
        if ground.now.number != request.head or not self.next(ground, **change):
            raise HeadMoved(f"version {number} is there already")
        return next(self.newest_first(ToyGround((number,), self.read(number), None)))

    def limit(self, ground: ToyGround) -> HistoryLimit:
        return HistoryLimit.of(ground.now.properties)

    def protected(self, ground: ToyGround) -> set[SnapshotId]:
        own = _own(ground.now.newest)
        return {s for s in (ground.head_id, None if own is None else own.snapshot_id) if s is not None}

    def forget(self, ground: ToyGround, snapshots: Collection[SnapshotId]) -> bool:
        expired = sorted({*ground.now.expired, *map(int, snapshots)})
        return expired == ground.now.expired or self.next(ground, expired=expired)

    def references(self, ground: ToyGround) -> set[str]:
        return self._paths(n for n in ground.numbers if n not in ground.now.expired)

    def only_in(self, ground: ToyGround, expired: Sequence[ExpiringSnapshot]) -> list[str]:
        return sorted(self._paths(self._expired(ground)) - self.references(ground))

    def clean(self, ground: ToyGround, expired: Sequence[ExpiringSnapshot]) -> Sequence[str]:
        return [f"{self.root}/log/{n}.json" for n in self._expired(ground)]

    def _expired(self, ground: ToyGround) -> list[int]:
        return [n for n in ground.numbers if n in ground.now.expired]

    def _paths(self, numbers: Iterable[int]) -> set[str]:
        files = [f for n in numbers for f in self.read(n).files]
        return {f["path"] for f in files} | {f["deletes"] for f in files if f["deletes"]}


def _own(own: list[Any]) -> OwnCommit | None:
    return OwnCommit(SnapshotId(str(own[0])), own[1]) if own else None


class ToySnapshotFiles(SnapshotFiles[ToyFile]):
    def __init__(self, files: Sequence[ToyFile], keys: Sequence[str] = ()) -> None:
        self.files, self._keys = files, keys

    def key(self, file: ToyFile) -> str:
        return file.path

    def path(self, file: ToyFile) -> str:
        return file.path

    def bucket(self, file: ToyFile) -> Bucket:
        return Bucket.parse(file.bucket)

    def bounds(self, file: ToyFile) -> OffsetRange:
        return OffsetRange(file.first, file.last + 1)

    def rows(self, file: ToyFile) -> int:
        return file.rows

    def live_rows(self, file: ToyFile) -> int:
        return file.rows - file.deleted

    def size(self, file: ToyFile) -> int:
        return file.size

    def offsets(self, file: ToyFile) -> Offsets:
        return np.asarray(pq.read_table(file.path, columns=[OFFSET]).column(0).to_numpy(), np.int64)

    def deleted(self, file: ToyFile) -> OffsetSet:
        return load_deleted(file.deletes)

    def delete_files(self) -> int:
        return sum(bool(f.deletes) for f in self.files)

    def describe(self, file: ToyFile) -> LakeFile:
        deletes = [LakeDelete(path=file.deletes, content="vector", record_count=file.deleted)] if file.deletes else []
        return LakeFile(
            path=file.path,
            bucket=self.bucket(file),
            record_count=file.rows,
            size_bytes=file.size,
            offsets=self.bounds(file),
            sequence=file.since,
            deletes=tuple(deletes),
            partition=dict(zip(self._keys, partition_values(self.bucket(file).partition), strict=False)),
            is_reader_needed=True,
        )

    def read(self, files: Sequence[ToyFile], schema: pa.Schema) -> Iterator[pa.Table]:
        return (fit_rows(live_rows(f.path, self.deleted(f)), schema) for f in files)


def live_rows(path: str, deleted: OffsetSet) -> pa.Table:
    rows = pq.read_table(path)
    return rows.filter(pa.array(~deleted.mask(np.arange(rows.num_rows))))


def load_deleted(path: str) -> OffsetSet:
    return OffsetSet(np.asarray(json.loads(STORAGE.read(path) or "[]"), np.int64)) if path else OffsetSet()


@dataclass(frozen=True)
class ToyHandle(Packed):
    packed_as: ClassVar = ("toy-handle", 1)

    prefix: str
    schema: bytes


@dataclass(frozen=True)
class ToyWritten(Packed):
    packed_as: ClassVar = ("toy-written", 1)

    files: tuple[ToyFile, ...]
    ranks: tuple[RankTable, ...] = ()


class ToyWriter(LakeWriter):
    def __init__(self, task: WriteTask) -> None:
        self._task, self._handle, self._parts = task, ToyHandle.from_bytes(task.handle), list[pa.RecordBatch]()

    def write(self, batch: pa.RecordBatch) -> None:
        self._parts += [batch] if batch.num_rows else []

    def complete(self) -> bytes | None:
        if not self._parts:
            return None
        bucket, encoding, where = self._task.split.bucket, RowEncoding.of("toy", self._task), str(self._task.table.path)
        schema, number = pa.ipc.read_schema(pa.py_buffer(self._handle.schema)), {BUCKET: str(bucket.number)}
        pending = pa.Table.from_batches(self._parts)
        rows = encoding.fit(pending, lambda part: conform(part, schema, number, where))
        path, offsets = f"{self._handle.prefix}{uuid.uuid4().hex}.parquet", rows.column(OFFSET)
        fault_point("lake.before-row-group", path=path)
        with STORAGE.open_output(path) as out, encoding.errors(pending, schema):
            pq.write_table(rows, out)
        size, first, last = os.path.getsize(path), offsets[0].as_py(), offsets[-1].as_py()
        return ToyWritten((ToyFile(path, str(bucket), rows.num_rows, size, first, last),)).to_bytes()

    def abort(self) -> None:
        self._parts = []


class ToyFiles(RowFiles[ToyGround, ToyFile]):
    def __init__(self, log: ToyLog, info: TableInfo) -> None:
        self._log, self._keys = log, info.descriptor.partition_keys

    def handle(self, ground: ToyGround, round_id: RoundId) -> bytes:
        return ToyHandle(self.prefix(round_id), self.schema(ground).serialize().to_pybytes()).to_bytes()

    def prefix(self, round_id: RoundId) -> str:
        return f"{self._log.root}/data/{round_id}-"

    def at(self, ground: ToyGround, snapshot_id: SnapshotId | None = None) -> ToySnapshotFiles:
        version = ground.now if snapshot_id is None else self._log.read(int(snapshot_id))
        return ToySnapshotFiles([ToyFile(**f) for f in version.files], self._keys)

    def among(self, ground: ToyGround, files: Sequence[ToyFile]) -> ToySnapshotFiles:
        return ToySnapshotFiles(files, self._keys)

    def schema(self, ground: ToyGround) -> pa.Schema:
        return pa.schema([*to_arrow_schema(columns_of(ground.now)), *LAKE_FIELDS])

    def parse_written(self, ground: ToyGround, results: Sequence[bytes]) -> WrittenFiles[ToyFile]:
        files = [f for data in results for f in ToyWritten.from_bytes(data).files]
        return WrittenFiles(files=[replace(f, since=ground.now.number + 1) for f in files])

    def parse_rewritten(self, ground: ToyGround, result: RewriteResult) -> RewrittenFiles[ToyFile]:
        new, since = ToyWritten.from_bytes(result.payload), max(f.sequence for f in result.group.files)
        return RewrittenFiles(files=[replace(f, since=since) for f in new.files], ranks=new.ranks)

    def mark_deleted(
        self, ground: ToyGround, round_id: RoundId, deletions: Sequence[Deletion[ToyFile]]
    ) -> MarkedFiles[ToyFile]:
        after = []
        for deletion in deletions:
            both = deletion.deleted.union(deletion.positions)
            path = f"{self.prefix(round_id)}{uuid.uuid4().hex}.deletes"
            STORAGE.put(path, json.dumps(both.values.tolist()))
            after.append(replace(deletion.file, deletes=path, deleted=len(both)))
        size = sum(os.path.getsize(f.deletes) for f in after)
        return MarkedFiles(files=after, delete_files=len(after), bytes_written=size)

    def deleted_rows(self, file: LakeFile) -> OffsetSet:
        return load_deleted(file.deletes[0].path if file.deletes else "")

    def deleted_offsets(self, file: LakeFile) -> OffsetSet:
        offsets = pq.read_table(file.path, columns=[OFFSET]).column(0).to_numpy()
        return OffsetSet(offsets[self.deleted_rows(file).values])

    def list_files(self, prefix: str | None) -> Iterable[StoredFile]:
        files = STORAGE.walk(f"{self._log.root}/data")
        return [f for f in files if prefix is None or f.path.startswith(prefix)]

    def delete(self, path: str) -> int:
        return STORAGE.delete(path)


class ToyCatalog(CoreCatalog[ToyGround]):
    lake = "toy"

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def check(self) -> None:
        """A folder always answers."""

    def open_log(self, path: TablePath) -> ToyLog:
        return ToyLog(f"{self._folder}/{path.database}/{path.table}", str(path))

    def exists(self, path: TablePath) -> bool:
        return bool(self.open_log(path).numbers())

    def location(self, path: TablePath) -> str:
        return self.open_log(path).root

    def drop(self, path: TablePath) -> None:
        STORAGE.remove_folder(self.location(path))

    def columns(self, ground: ToyGround) -> Sequence[Column]:
        return columns_of(ground.now)

    def properties(self, ground: ToyGround) -> Mapping[str, str]:
        return ground.now.properties

    def layout(self, ground: ToyGround) -> Mapping[str, str]:
        return ground.now.layout

    def expected_layout(self, descriptor: TableDescriptor) -> Mapping[str, str]:
        return {"primary key": ",".join(descriptor.primary_key), "partitions": ",".join(descriptor.partition_keys)}

    def make(self, table: TableInfo, properties: Mapping[str, str]) -> bool:
        log, layout = self.open_log(table.path), dict(self.expected_layout(table.descriptor))
        columns = spell_columns(table.descriptor.schema.columns)
        return log.put(
            ToyVersion(0, log.now_ms(), "create", columns, layout, dict(properties), [], [], {}, [], [], True)
        )

    def put_columns(self, ground: ToyGround, table: TableInfo, columns: Sequence[Column]) -> bool:
        return self.open_log(table.path).next(ground, columns=[*ground.now.columns, *spell_columns(columns)])

    def put_properties(self, ground: ToyGround, table: TableInfo, changes: Mapping[str, str | None]) -> bool:
        wanted = {**ground.now.properties, **changes}
        kept = {k: v for k, v in wanted.items() if v is not None}
        return self.open_log(table.path).next(ground, properties=kept)


def spell_columns(columns: Sequence[Column]) -> list[list[str]]:
    return [[c.name, str(c.type)] for c in columns]


def columns_of(version: ToyVersion) -> tuple[Column, ...]:
    return tuple(Column(name=name, type=parse_type(kind)) for name, kind in version.columns)


class ToyStorage(PositionStorage[ToyGround]):
    name = "toy"
    capabilities = replace(CAPABILITIES, delete_encodings=frozenset({DeleteEncoding.POSITIONS}))

    def __init__(self, folder: str) -> None:
        self._catalog = ToyCatalog(folder)

    def catalog(self) -> ToyCatalog:
        return self._catalog

    def open_table(self, table: TableInfo) -> PositionTable[ToyGround]:
        log = self._catalog.open_log(table.path)
        return PositionTable.of(table, log, ToyFiles(log, table))

    def open_writer(self, task: WriteTask) -> ToyWriter:
        return ToyWriter(task)

    def rewrite(self, task: RewriteTask, is_due: Callable[[], bool] = lambda: False) -> RewriteResult | None:
        def read(file: LakeFile) -> tuple[OffsetSet, Iterator[pa.Table]]:
            deleted = load_deleted(file.deletes[0].path if file.deletes else "")
            schema = pa.ipc.read_schema(pa.py_buffer(ToyHandle.from_bytes(task.handle).schema))
            return deleted, iter([fit_rows(live_rows(file.path, deleted), schema)])

        def write(rows: pa.Table | None, ranks: Sequence[RankTable]) -> NewFiles:
            data = None if rows is None or not rows.num_rows else write_rows(task, rows, ToyWriter)
            files = () if data is None else ToyWritten.from_bytes(data).files
            count, size = sum(f.rows for f in files), sum(f.size for f in files)
            return NewFiles(ToyWritten(files, tuple(ranks)).to_bytes(), count, size)

        return rewrite_group(task, is_due, read, write)


def load(options: Mapping[str, str]) -> ToyStorage:
    return ToyStorage(options["folder"])
