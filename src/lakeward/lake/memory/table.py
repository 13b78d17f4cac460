# SPDX-License-Identifier: Apache-2.0
"""State of a memory lake: tables with snapshots, main, the tag, and the files in storage. Only `commit` changes it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from lakeward.errors import LakeTableGone, SnapshotGone
from lakeward.model import Bucket, Clock, Column, OffsetSet, SnapshotId, SystemClock, TableDescriptor, TablePath


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """`rows`: the user's columns, `__bucket`, `__offset`, `__timestamp`."""

    path: str
    bucket: Bucket
    rows: pa.Table
    modified_at_ms: int

    @property
    def size_bytes(self) -> int:
        return int(self.rows.nbytes)


@dataclass(frozen=True, kw_only=True)
class PositionDeletes:
    """Deleted rows of one data file."""

    path: str
    bucket: Bucket
    data_path: str
    positions: OffsetSet
    modified_at_ms: int

    @property
    def size_bytes(self) -> int:
        return int(self.positions.values.nbytes)


@dataclass(frozen=True, kw_only=True)
class KeyDeletes:
    """Deleted keys of one bucket, for every data file that an earlier snapshot added."""

    path: str
    bucket: Bucket
    keys: pa.Table
    modified_at_ms: int

    @property
    def size_bytes(self) -> int:
        return int(self.keys.nbytes)


MemoryFile = DataFile | PositionDeletes | KeyDeletes


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """`data` and `deletes`: path -> number of the snapshot that added it, which is its sequence number."""

    number: int
    parent: int | None
    committed_at_ms: int
    operation: str
    summary: Mapping[str, str]
    data: Mapping[str, int]
    deletes: Mapping[str, int]

    @property
    def id(self) -> SnapshotId:
        return SnapshotId(str(self.number))

    @property
    def paths(self) -> set[str]:
        return {*self.data, *self.deletes}


@dataclass(frozen=True, kw_only=True)
class Refs:
    """The main and tag that a commit requires."""

    uuid: str
    head: int | None
    tag: int | None


@dataclass(kw_only=True)
class MemoryTable:
    path: TablePath
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    partition_keys: tuple[str, ...]
    spec: tuple[str, ...]
    properties: dict[str, str]
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    head: int | None = None
    tag: int | None = None
    files: dict[str, MemoryFile] = field(default_factory=dict)
    last_number: int = 0
    known: set[int] = field(default_factory=set)
    """Ids of all columns that the table ever had: files may have them."""

    @property
    def location(self) -> str:
        return f"memory://{self.path.database}/{self.path.table}-{self.uuid[:8]}"

    @property
    def refs(self) -> Refs:
        return Refs(uuid=self.uuid, head=self.head, tag=self.tag)

    def snapshot(self, snapshot_id: SnapshotId | int) -> Snapshot:
        snapshot = self.snapshots.get(int(snapshot_id)) if str(snapshot_id).isdigit() else None
        if snapshot is None:
            raise SnapshotGone(table=str(self.path), snapshot=str(snapshot_id), advice="read again from the newest one")
        return snapshot

    def data_file(self, path: str) -> DataFile:
        file = self.files[path]
        assert isinstance(file, DataFile)
        return file


class MemoryLake:
    """Tables by path. `lock` makes each operation of the catalog atomic; `clock` may be replaced by a test."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self.lock = threading.RLock()
        self.tables: dict[TablePath, MemoryTable] = {}

    def table(self, path: TablePath) -> MemoryTable:
        with self.lock:
            if path not in self.tables:
                raise LakeTableGone(table=str(path))
            return self.tables[path]

    def commit(
        self,
        table: MemoryTable,
        refs: Refs,
        *,
        operation: str,
        summary: Mapping[str, str],
        add: frozenset[str] = frozenset(),
        drop: frozenset[str] = frozenset(),
        move_tag: bool = True,
        sequences: Mapping[str, int] | None = None,
    ) -> Snapshot | None:
        """Compare and swap on main and the tag as in `refs`. Returns the new snapshot, or None for a conflict.
        `sequences`: of added data files whose number differs from the snapshot's."""
        with self.lock:
            if self.tables.get(table.path) is not table or table.refs != refs:
                return None
            parent = None if table.head is None else table.snapshots[table.head]
            table.last_number += 1
            number = table.last_number
            data = {
                **(parent.data if parent else {}),
                **{p: (sequences or {}).get(p, number) for p in add if isinstance(table.files.get(p), DataFile)},
            }
            data = {p: n for p, n in data.items() if p not in drop}
            deletes = {**(parent.deletes if parent else {}), **{p: number for p in add if p not in data}}
            snapshot = Snapshot(
                number=number,
                parent=table.head,
                committed_at_ms=self.clock.now_ms(),
                operation=operation,
                summary=dict(summary),
                data=data,
                deletes={p: n for p, n in deletes.items() if p not in drop and _applies(table, p, n, data)},
            )
            table.snapshots[number] = snapshot
            table.head = number
            table.tag = number if move_tag else table.tag
            return snapshot


def table_of(path: TablePath, descriptor: TableDescriptor, properties: Mapping[str, str]) -> MemoryTable:
    return MemoryTable(
        path=path,
        columns=descriptor.schema.columns,
        primary_key=descriptor.primary_key,
        partition_keys=descriptor.partition_keys,
        spec=spec_of(descriptor),
        properties=dict(properties),
        known={c.column_id for c in descriptor.schema.columns},
    )


def spec_of(descriptor: TableDescriptor) -> tuple[str, ...]:
    """Describes the table's layout, which must match."""
    keys = ", ".join(descriptor.bucket_keys) or "none"
    return (*descriptor.partition_keys, f"{descriptor.bucket_function}[{descriptor.bucket_count}]({keys})")


def _applies(table: MemoryTable, path: str, sequence: int, data: Mapping[str, int]) -> bool:
    """Whether a delete still applies: it leaves with the last data file that it applies to."""
    match table.files.get(path):
        case PositionDeletes() as file:
            return file.data_path in data
        case KeyDeletes() as file:
            return any(n < sequence and table.data_file(p).bucket == file.bucket for p, n in data.items())
        case _:
            return True
