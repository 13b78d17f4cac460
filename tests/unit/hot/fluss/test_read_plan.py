# SPDX-License-Identifier: Apache-2.0
"""Union reads of a bucket that the lake does not have: rows of a PK table that left the log are not just left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lakeward.errors import LogTooShort
from lakeward.hot.fluss.coordinatorclient import FlussCoordinatorClient
from lakeward.hot.fluss.store import FlussStore
from lakeward.hot.fluss.wire.servers import FlussServers
from lakeward.model import Bucket, Column, OffsetRange, Schema, TableInfo, TablePath, parse_type
from lakeward.spi import LogBounds
from tests.unit.hot.fluss.test_moves import TABLE

B0 = Bucket("", 0)
SCHEMA = Schema(columns=(Column(name="id", type=parse_type("BIGINT NOT NULL")),))


class Store(FlussStore):
    """A table whose first ten records have expired."""

    def __init__(self, key: Sequence[str]) -> None:
        super().__init__(FlussServers("127.0.0.1:1"))
        self._table = TABLE.with_descriptor(
            replace(TABLE.descriptor, schema=SCHEMA, primary_key=tuple(key), bucket_keys=("id",))
        )

    def load_table(self, path: TablePath) -> TableInfo:
        return self._table

    def freeze(self, table: TableInfo) -> Mapping[Bucket, LogBounds]:
        return {B0: LogBounds(start=10, end=20)}


class EmptyLake:
    def open_reader(self, table: TableInfo) -> EmptyLake:
        return self

    def load_snapshot(self) -> None:
        return None


def client(*key: str) -> FlussCoordinatorClient:
    store, lake = Store(key), EmptyLake()
    lake_of: Any = lambda _table: ("iceberg", {}, lake)  # noqa: E731
    return FlussCoordinatorClient(store.servers, store, lake_of)


def test_a_log_table_is_read_from_where_its_log_begins() -> None:
    (tail,) = client().read_plan(TABLE.path).tails
    assert tail.range == OffsetRange(10, 20)


def test_keys_of_a_pk_table_that_left_the_log_are_missed() -> None:
    with pytest.raises(LogTooShort):
        client("id").read_plan(TABLE.path)
