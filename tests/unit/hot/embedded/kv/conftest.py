# SPDX-License-Identifier: Apache-2.0
"""A PK bucket over a memory log, with plain Python rows in and out."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeward.hot.embedded.kv.bucket import KvBucket
from lakeward.hot.embedded.kv.database import KvResources
from lakeward.hot.embedded.kv.kvoptions import KvOptions
from lakeward.hot.embedded.log.writers import Appended, WriterSequence
from lakeward.model import (
    Bucket,
    ChangeType,
    Column,
    Int32Type,
    Int64Type,
    Schema,
    StringType,
    TableDescriptor,
    TableId,
    TableInfo,
    TablePath,
    to_arrow_schema,
)
from lakeward_testing.clock import ManualClock
from lakeward_testing.hots.changelog import MemoryChangelogLog

Row = dict[str, Any]

SCHEMA = Schema(
    columns=(
        Column(name="k", type=Int64Type(nullable=False)),
        Column(name="s", type=StringType()),
        Column(name="v", type=Int32Type()),
    )
)


class PkTable:
    """One bucket of a table (k BIGINT NOT NULL, s STRING, v INT) that can be closed, killed and opened again."""

    def __init__(self, folder: Path, properties: Mapping[str, str], schema: Schema = SCHEMA) -> None:
        self.folder, self.clock, self.log = folder, ManualClock(), MemoryChangelogLog()
        self.schemas = {schema.schema_id: schema}
        self.properties = dict(properties)
        self.options = KvOptions()
        self.resources = KvResources(1 << 20, 8 << 20)
        self.kv = self._open()

    @property
    def info(self) -> TableInfo:
        descriptor = TableDescriptor(
            schema=self.schemas[max(self.schemas)], primary_key=("k",), properties=self.properties
        )
        return TableInfo(path=TablePath("db", "t"), table_id=TableId("t-1"), descriptor=descriptor)

    def _open(self) -> KvBucket:
        return KvBucket(
            self.folder,
            self.info,
            Bucket("", 0),
            self.log,
            schemas=self.schemas,
            resources=self.resources,
            clock=self.clock,
            options=self.options,
        )

    def reopen(self) -> None:
        self.kv.close()
        self.kv = self._open()

    def crash(self, *, power_cut: bool = False) -> None:
        """As after kill -9: what RocksDB held in memory is gone. A power cut also takes what the log had not synced."""
        image = self.folder.with_name(self.folder.name + "x")
        shutil.copytree(self.folder, image)
        if power_cut:
            self.log.lose_unsynced()
        self.kv.abandon()
        self.folder = image
        self.kv = self._open()

    def add_columns(self, *added: Column) -> None:
        schema = self.schemas[max(self.schemas)].with_added(added)
        self.schemas = {**self.schemas, schema.schema_id: schema}
        self.kv.set_table(self.info, self.schemas)

    def upsert(
        self, *rows: Row, columns: Sequence[str] | None = None, writer: WriterSequence | None = None
    ) -> Appended:
        return self.kv.upsert(self.batch(rows), columns, writer)

    def delete(self, *keys: int, writer: WriterSequence | None = None) -> Appended:
        return self.kv.delete(self.batch([{"k": k} for k in keys]), writer)

    def batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        arrow = to_arrow_schema(self.schemas[max(self.schemas)])
        names = [n for n in arrow.names if any(n in row for row in rows)] or arrow.names
        return pa.RecordBatch.from_pylist(
            list(rows), schema=pa.schema([arrow.field(n).with_nullable(True) for n in names])
        )

    def lookup(self, *keys: int) -> list[Row]:
        return [
            {n: v for n, v in row.items() if n != "__timestamp"}
            for row in self.kv.lookup(self.batch([{"k": k} for k in keys])).to_pylist()
        ]

    def records(self, start: int = 0) -> list[tuple[Any, ...]]:
        """(offset, change, previous offset, k, s, v) of every record from `start` on."""
        rows = [row for batch in self.log.read(0, self.log.end, unsynced=True) for row in batch.to_pylist()]
        return [
            (r["__offset"], ChangeType(r["__change_type"]).short, r["__prev_offset"], r["k"], r["s"], r["v"])
            for r in rows
            if r["__offset"] >= start
        ]

    def snapshot_rows(self, snapshot_id: str, columns: Sequence[str] | None = None) -> list[Row]:
        return [row for batch in self.kv.read_snapshot(snapshot_id, columns) for row in batch.to_pylist()]


MakeTable = Callable[..., PkTable]


@pytest.fixture
def make_table(tmp_path: Path) -> Iterator[MakeTable]:
    made: list[PkTable] = []

    def make(**properties: str) -> PkTable:
        spelled = {name.replace("__", "."): value for name, value in properties.items()}
        made.append(PkTable(tmp_path / f"kv{len(made)}", spelled))
        return made[-1]

    yield make
    for table in made:
        table.kv.close()


@pytest.fixture
def table(make_table: MakeTable) -> PkTable:
    return make_table()
