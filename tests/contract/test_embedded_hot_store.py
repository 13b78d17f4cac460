# SPDX-License-Identifier: Apache-2.0
"""The embedded store, in process, keeps the hot store contract. Its Flight client has a test of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.hot.embedded.options import StoreOptions
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model.arrow import to_arrow_schema
from lakeward.model.bucket import Bucket
from lakeward.model.offsets import OffsetMap
from lakeward.model.schema import Column
from lakeward.model.table import TableInfo, TablePath
from lakeward.spi.hot import HotStore, KvSnapshot, LogBounds
from lakeward.testing.hots import HotContract
from lakeward.testing.scripted_log import Row


class InProcess(HotStore):
    """The store without a server between."""

    has_prev_offset = True

    def __init__(self, store: EmbeddedStore) -> None:
        self.inner = store

    def load_table(self, path: TablePath) -> TableInfo:
        return self.inner.load_table(path)

    def list_tables(self) -> Sequence[TablePath]:
        return [t.path for t in self.inner.list_tables()]

    def freeze(self, table: TableInfo) -> Mapping[Bucket, LogBounds]:
        return self.inner.freeze(table)

    def read_log(
        self, table: TableInfo, bucket: Bucket, start: int, stop: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        return self.inner.read_log(table, bucket, start, stop, columns)

    def offset_at(self, table: TableInfo, bucket: Bucket, at_ms: int) -> int:
        return self.inner.offset_at(table, bucket, at_ms)

    def take_snapshot(self, table: TableInfo, bucket: Bucket, holder: str) -> KvSnapshot | None:
        return self.inner.take_snapshot(table, bucket, holder)

    def read_snapshot(
        self, table: TableInfo, snapshot: KvSnapshot, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        return self.inner.read_snapshot(table, snapshot, columns)

    def release_snapshots(self, table: TableInfo, holder: str) -> None:
        self.inner.release_snapshots(table, holder)

    def close(self) -> None:
        self.inner.close()


class TestEmbeddedHotStore(HotContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[HotStore]:
        store = InProcess(
            EmbeddedStore.open(tmp_path / "data", StoreOptions.with_settings({"log.segment.file-size": "2kb"}))
        )
        yield store
        store.close()

    def create(self, store: HotStore, table: TableInfo) -> TableInfo:
        inner(store).create_table(table)
        return table

    def write(self, store: HotStore, table: TableInfo, bucket: Bucket, rows: Sequence[Row]) -> None:
        table = inner(store).load_table(table.path)
        batch = pa.RecordBatch.from_pylist(list(rows), schema=to_arrow_schema(table.schema))
        if table.is_pk:
            inner(store).upsert(table, bucket, batch)
        else:
            inner(store).append(table, bucket, batch)

    def delete(self, store: HotStore, table: TableInfo, bucket: Bucket, keys: Sequence[Row]) -> None:
        schema = to_arrow_schema([table.schema.column(n) for n in table.descriptor.primary_key])
        batch = pa.RecordBatch.from_pylist([{n: k[n] for n in schema.names} for k in keys], schema=schema)
        inner(store).delete(table, bucket, batch)

    def add_column(self, store: HotStore, table: TableInfo, column: Column) -> TableInfo:
        grown = table.with_descriptor(replace(table.descriptor, schema=table.schema.with_added([column])))
        inner(store).alter_table(grown)
        return grown

    def make_gap(self, store: HotStore, table: TableInfo, bucket: Bucket, end: int) -> None:
        inner(store).guard_offsets(table, OffsetMap({bucket: end}))


def inner(store: HotStore) -> EmbeddedStore:
    assert isinstance(store, InProcess)
    return store.inner
