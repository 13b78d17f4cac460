# SPDX-License-Identifier: Apache-2.0
"""A whole lake format on `lake/core`: a folder of Parquet files, and a JSON file for each version that says all of the
table. Creating the next version's file is the compare-and-swap. It passes the contract suite.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakeward.errors import LakeTableGone
from lakeward.lake.core.catalog import HISTORY, WarehouseCatalog
from lakeward.lake.core.change import RowFileChange
from lakeward.lake.core.history import LogSnapshot
from lakeward.lake.core.log import VersionRequest
from lakeward.lake.core.parquet import ParquetFiles, ParquetLakeWriter, rewrite_parquet
from lakeward.lake.core.storage import PositionStorage
from lakeward.lake.core.table import PositionTable
from lakeward.lake.core.versionlog import ManifestLog
from lakeward.lake.memory.plugin import CAPABILITIES
from lakeward.lake.tablefiles import LocalFiles
from lakeward.lake.warehouse import Warehouse
from lakeward.model import LAKE_FIELDS, Column, SnapshotId, TableInfo, TablePath, parse_type, to_arrow_schema
from lakeward.protocol.codec import decode, encode
from lakeward.spi import DeleteEncoding, LakeFile, RewriteResult, RewriteTask, WriteTask

STORAGE = LocalFiles()
Change = RowFileChange[LakeFile]


@dataclass(frozen=True)
class ToyVersion:
    """`keys`: of our commit. `snapshot`: the newest version that changed rows. `restored`: the one it went back to."""

    number: int
    at_ms: int
    operation: str
    columns: tuple[tuple[str, str], ...]
    layout: dict[str, str]
    properties: dict[str, str]
    files: tuple[LakeFile, ...] = ()
    expired: tuple[int, ...] = ()
    keys: dict[str, str] | None = None
    snapshot: int | None = None
    restored: int | None = None


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

    @property
    def columns(self) -> list[Column]:
        return [Column(name=name, type=parse_type(kind)) for name, kind in self.now.columns]


class ToyLog(ManifestLog[ToyGround, Change]):
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
        own = {"number": now.number + 1, "at_ms": self.now_ms(), "keys": None, "restored": None}
        return self.create(replace(now, **{**own, **change}))

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
            is_snapshot=read.snapshot == version,
            restores=None if read.restored is None else SnapshotId(str(read.restored)),
        )

    def encode_change(self, ground: ToyGround, change: Change) -> Mapping[str, Any]:
        out = {f.path for f in (*change.removed, *(old for old, _ in change.changed))}
        new = [*(f for f in ground.now.files if f.path not in out), *(n for _, n in change.changed), *change.added]
        return {"files": encode(tuple(new)), "operation": change.kind}

    def put(self, request: VersionRequest, expired: Sequence[int]) -> bool:
        files = tuple(decode(LakeFile, f) for f in request.change["files"])
        own = {"keys": dict(request.keys), "snapshot": request.head + 1, "expired": tuple(expired)}
        return self.next(self.read(request.head), files=files, operation=request.change["operation"], **own)

    def put_expired(self, ground: ToyGround, expired: Sequence[int]) -> bool:
        return self.next(ground.now, expired=tuple(expired))

    def paths(self, version: int) -> Collection[str]:
        return {path for f in self.read(version).files for path in (f.path, *(d.path for d in f.deletes))}


class ToyFiles(ParquetFiles[ToyGround]):
    def __init__(self, log: ToyLog) -> None:
        super().__init__("toy", STORAGE, log.folder, log.table)
        self._log = log

    def files_at(self, ground: ToyGround, snapshot_id: SnapshotId | None) -> Sequence[LakeFile]:
        return (ground.now if snapshot_id is None else self._log.read(int(snapshot_id))).files

    def age(self, ground: ToyGround) -> int:
        return ground.now.number + 1

    def schema(self, ground: ToyGround) -> pa.Schema:
        return pa.schema([*to_arrow_schema(ground.columns), *LAKE_FIELDS])


class ToyCatalog(WarehouseCatalog[ToyGround]):
    lake, allowed = "toy", HISTORY

    def open_log(self, path: TablePath) -> ToyLog:
        return ToyLog(self.location(path), str(path))

    def exists(self, path: TablePath) -> bool:
        return bool(self.open_log(path).versions())

    def columns(self, ground: ToyGround) -> Sequence[Column]:
        return ground.columns

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

    def open_writer(self, task: WriteTask) -> ParquetLakeWriter:
        return ParquetLakeWriter("toy", STORAGE, task)

    def rewrite(self, task: RewriteTask, is_due: Callable[[], bool] = lambda: False) -> RewriteResult | None:
        return rewrite_parquet("toy", STORAGE, task, is_due)


def load(options: Mapping[str, str]) -> ToyStorage:
    return ToyStorage(options["folder"])
