# SPDX-License-Identifier: Apache-2.0
"""Default methods of the lake interfaces, for a plugin that implements the abstract ones alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from lakeward.client.columns import parse_columns
from lakeward.errors import SnapshotGone
from lakeward.lake.memory.plugin import MemoryLakeStorage
from lakeward.lake.memory.table import MemoryLake
from lakeward.model import (
    Bucket,
    LakeBase,
    Schema,
    SnapshotId,
    TableDescriptor,
    TableId,
    TableInfo,
    TablePath,
    new_table_id,
)
from lakeward.spi import (
    LakeCatalog,
    LakeFile,
    LakeMaintenance,
    LakeReader,
    LakeSnapshot,
    LakeStorage,
    SupportsProbe,
    SupportsRestore,
)
from lakeward_testing.lakes.rounds import LakeRound
from lakeward_testing.scripted_log import ScriptedLog

B0 = Bucket("", 0)


def make_log(lake: LakeStorage) -> ScriptedLog:
    schema = Schema(columns=parse_columns("id bigint not null, amount bigint"))
    descriptor = TableDescriptor(schema=schema, primary_key=("id",), bucket_keys=("id",), bucket_count=1)
    table = TableInfo(path=TablePath.parse("shop.orders"), table_id=new_table_id(), descriptor=descriptor)
    lake.catalog().create(table)
    return ScriptedLog(table)


class PlainReader(LakeReader):
    def __init__(self, reader: LakeReader) -> None:
        self._reader = reader

    def load_base(self) -> LakeBase:
        return self._reader.load_base()

    def snapshots(self) -> Sequence[LakeSnapshot]:
        return self._reader.snapshots()

    def files(self, snapshot_id: SnapshotId, bucket: Bucket | None = None) -> Sequence[LakeFile]:
        return self._reader.files(snapshot_id, bucket)

    def scan(self, snapshot_id: SnapshotId, **options: Any) -> Iterator[pa.RecordBatch]:
        return self._reader.scan(snapshot_id, **options)


class PlainCatalog(LakeCatalog):
    def __init__(self) -> None:
        self.asked: list[TablePath] = []

    def create(self, table: TableInfo, *, adopt: bool = False) -> bool:
        return False

    def validate(self, table: TableInfo) -> None: ...

    def add_columns(self, table: TableInfo, columns: Sequence[Any]) -> None: ...

    def set_properties(self, table: TableInfo, changes: Mapping[str, str | None]) -> None: ...

    def exists(self, path: TablePath) -> bool:
        self.asked.append(path)
        return False

    def table_id(self, path: TablePath) -> TableId | None:
        return None


def test_a_reader_loads_snapshots_and_totals_from_its_abstract_methods() -> None:
    lake = MemoryLakeStorage(MemoryLake())
    log = make_log(lake)
    exact = lake.open_reader(log.table)
    plain = PlainReader(exact)
    assert plain.load_snapshot() is None
    assert plain.totals() == exact.totals()
    for id in (1, 2):
        log.upsert(B0, {"id": id, "amount": 1})
        LakeRound.plan(lake, log).run()
    first, second = (s.snapshot_id for s in exact.snapshots())
    assert plain.load_snapshot() == exact.load_snapshot(second)
    assert plain.load_snapshot(first) == exact.load_snapshot(first)
    assert plain.totals() == exact.totals()
    with pytest.raises(SnapshotGone, match="read again"):
        plain.load_snapshot(SnapshotId("99"))


def test_totals_of_files_with_deletes_are_an_upper_bound() -> None:
    lake = MemoryLakeStorage(MemoryLake())
    log = make_log(lake)
    for amount in (1, 2):
        log.upsert(B0, {"id": 1, "amount": amount})
        LakeRound.plan(lake, log).run()
    exact = lake.open_reader(log.table)
    totals = PlainReader(exact).totals()
    assert (exact.totals().rows, exact.totals().is_exact) == (1, True)
    assert (totals.rows, totals.is_exact, totals.delete_files) == (2, False, exact.totals().delete_files)


def test_a_catalog_is_checked_by_a_look_at_a_table() -> None:
    catalog = PlainCatalog()
    catalog.check()
    assert len(catalog.asked) == 1
    assert not isinstance(catalog, SupportsRestore)


def test_what_a_format_answers() -> None:
    abstract = LakeCatalog.__abstractmethods__ | LakeReader.__abstractmethods__ | LakeMaintenance.__abstractmethods__
    assert len(abstract) == 14
    assert not issubclass(LakeMaintenance, SupportsProbe)
