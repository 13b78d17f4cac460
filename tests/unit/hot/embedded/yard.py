# SPDX-License-Identifier: Apache-2.0
"""A yard to open, crash and reopen embedded stores in."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from lakeward.hot.embedded.options import StoreOptions
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import (
    OFFSET,
    Bucket,
    Column,
    Schema,
    TableDescriptor,
    TableId,
    TableInfo,
    TablePath,
    new_table_id,
    parse_type,
)
from lakeward.spi import RetentionGuard
from lakeward_testing.clock import ManualClock

B0 = Bucket("", 0)


class StubGuard(RetentionGuard):
    """A coordinator's answers, set by hand."""

    def __init__(self) -> None:
        self.enabled = True
        self.lake: dict[Bucket, int] = {}
        self.held: dict[Bucket, int] = {}

    def lake_offset(self, table_id: TableId, bucket: Bucket) -> int | None:
        return self.lake.get(bucket)

    def held_from(self, table_id: TableId, bucket: Bucket) -> int | None:
        return self.held.get(bucket)

    def lake_enabled(self, table_id: TableId) -> bool:
        return self.enabled


class Yard:
    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder / "data", ManualClock()
        self.settings: dict[str, object] = {"log.segment.file-size": "4kb", "server.disk.reserve": "0"}
        self.free: Callable[[Path], int] = lambda _: 1 << 40
        self.restored = False
        self.handles: int | None = None
        self._copies = 0
        self._stores: list[EmbeddedStore] = []

    def open(self, folder: Path | None = None, *, upkeep: bool = False) -> EmbeddedStore:
        options = replace(
            StoreOptions.with_settings(self.settings, upkeep=upkeep),
            free_bytes=self.free,
            restored=self.restored,
            handles=self.handles,
        )
        store = EmbeddedStore.open(folder or self.folder, options, self.clock)
        self._stores.append(store)
        return store

    def crash(self, store: EmbeddedStore) -> Path:
        """What a kill at this very moment would leave: a copy of the folder, the store still running."""
        self._copies += 1
        copy = self.folder.with_name(f"crashed-{self._copies}")
        shutil.copytree(self.folder, copy)
        return copy

    def close(self) -> None:
        for store in self._stores:
            store.close()

    def table(
        self,
        name: str = "t",
        *,
        columns: Mapping[str, str] | None = None,
        partition_keys: tuple[str, ...] = (),
        primary_key: tuple[str, ...] = (),
        buckets: int = 1,
        properties: Mapping[str, str] | None = None,
    ) -> TableInfo:
        typed = columns or {"id": "BIGINT NOT NULL", "text": "STRING"}
        descriptor = TableDescriptor(
            schema=Schema(columns=tuple(Column(name=n, type=parse_type(t)) for n, t in typed.items())),
            partition_keys=partition_keys,
            primary_key=primary_key,
            bucket_count=buckets,
            properties=properties or {},
        )
        return TableInfo(
            path=TablePath("db", name),
            table_id=new_table_id(),
            descriptor=descriptor,
            created_at_ms=self.clock.now_ms(),
        )


def table_folder(root: Path, table: TableInfo) -> Path:
    """Where a table's files are, whoever has the store open."""
    with closing(sqlite3.connect(root / "meta.db")) as db:
        (name,) = db.execute("SELECT folder FROM tables WHERE table_id = ?", (table.table_id,)).fetchone()
    return root / "tables" / str(name)


def rows(*ids: int, text: str = "x") -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "text": pa.array([text] * len(ids), pa.string())})


def read(
    store: EmbeddedStore, table: TableInfo, bucket: Bucket = B0, start: int | None = None, stop: int | None = None
) -> list[tuple[int, int]]:
    """(offset, id) of every row there is."""
    bounds = store.freeze(table)[bucket]
    batches = store.read_log(
        table, bucket, bounds.start if start is None else start, bounds.end if stop is None else stop
    )
    return [(r[OFFSET], r["id"]) for b in batches for r in b.to_pylist()]
