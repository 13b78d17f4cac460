# SPDX-License-Identifier: Apache-2.0
"""The embedded store, in process, keeps the hot store contract. Its Flight client has a test of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.hot.embedded.options import StoreOptions
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import Bucket, Column, OffsetMap, TableInfo, to_arrow_schema
from lakeward.spi import HotStore
from lakeward_testing.hots import HotContract
from lakeward_testing.scripted_log import Row


class TestEmbeddedHotStore(HotContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[HotStore]:
        store = EmbeddedStore.open(tmp_path / "data", StoreOptions.with_settings({"log.segment.file-size": "2kb"}))
        yield store
        store.close()

    def create(self, store: HotStore, table: TableInfo) -> TableInfo:
        embedded(store).create_table(table)
        return table

    def write(self, store: HotStore, table: TableInfo, bucket: Bucket, rows: Sequence[Row]) -> None:
        table = embedded(store).load_table(table.path)
        batch = pa.RecordBatch.from_pylist(list(rows), schema=to_arrow_schema(table.schema))
        if table.is_pk:
            embedded(store).upsert(table, bucket, batch)
        else:
            embedded(store).append(table, bucket, batch)

    def delete(self, store: HotStore, table: TableInfo, bucket: Bucket, keys: Sequence[Row]) -> None:
        schema = to_arrow_schema([table.schema.column(n) for n in table.descriptor.primary_key])
        batch = pa.RecordBatch.from_pylist([{n: k[n] for n in schema.names} for k in keys], schema=schema)
        embedded(store).delete(table, bucket, batch)

    def add_column(self, store: HotStore, table: TableInfo, column: Column) -> TableInfo:
        grown = table.with_descriptor(replace(table.descriptor, schema=table.schema.with_added([column])))
        embedded(store).alter_table(grown)
        return grown

    def make_gap(self, store: HotStore, table: TableInfo, bucket: Bucket, end: int) -> None:
        embedded(store).guard_offsets(table, OffsetMap({bucket: end}))


def embedded(store: HotStore) -> EmbeddedStore:
    assert isinstance(store, EmbeddedStore)
    return store
