# SPDX-License-Identifier: Apache-2.0
"""The scripted hot store keeps the hot store contract, which shows that the contract can be kept."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lakeward.model import Bucket, Column, TableInfo
from lakeward.spi import HotStore
from lakeward_testing.hots import HotContract
from lakeward_testing.scripted_log import Row
from tests.kit.scripted_store import ScriptedHotStore


class TestScriptedHotStore(HotContract):
    @pytest.fixture
    def store(self) -> ScriptedHotStore:
        return ScriptedHotStore()

    def create(self, store: HotStore, table: TableInfo) -> TableInfo:
        return scripted(store).create(table).table

    def write(self, store: HotStore, table: TableInfo, bucket: Bucket, rows: Sequence[Row]) -> None:
        scripted(store).write(table, bucket, rows)

    def delete(self, store: HotStore, table: TableInfo, bucket: Bucket, keys: Sequence[Row]) -> None:
        scripted(store).delete(table, bucket, keys)

    def add_column(self, store: HotStore, table: TableInfo, column: Column) -> TableInfo:
        return scripted(store).add_column(table, column)

    def make_gap(self, store: HotStore, table: TableInfo, bucket: Bucket, end: int) -> None:
        scripted(store).make_gap(table, bucket, end)


def scripted(store: HotStore) -> ScriptedHotStore:
    assert isinstance(store, ScriptedHotStore)
    return store
