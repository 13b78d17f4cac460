# SPDX-License-Identifier: Apache-2.0
"""A log table whose lake table has no system columns: compared by offset, or by value where another
engine rewrote files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.hot.fluss.lakehistory import read_ledger
from lakeward.hot.fluss.readplan import plan_read
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import LeaseId, LedgerEntry, SideName, SystemClock, TableInfo, TablePath
from lakeward.protocol.readplan import ReadPlan
from lakeward.spi import HotPlugin
from lakeward.verify import verify_table
from lakeward.verify.certificate import Certificate, CertificateVerdict, FindingKind
from lakeward_testing.lakes.suite import B0, B1, row
from lakeward_testing.scripted_log import ScriptedLog
from tests.kit.iceberg.folder import folder_lake
from tests.kit.scripted_store import ScriptedHotStore
from tests.unit.lake.iceberg.test_clean import make_log, run
from tests.unit.tiering.world import BookCoordinator


class LakeLedger(BookCoordinator):
    """As in a Fluss cluster: the lake's snapshots are the ledger, and nothing is leased."""

    def __init__(self, table: TableInfo, store: ScriptedHotStore, lake: IcebergLakeStorage) -> None:
        super().__init__(table)
        self._store, self._lake = store, lake

    def ledger(self, path: TablePath, side: SideName | None = None) -> Sequence[LedgerEntry]:
        reader = self._lake.open_reader(self.table)
        return read_ledger(self.table.table_id, reader.snapshots(), reader.load_base().head)

    def read_plan(
        self, path: TablePath, *, lease_s: float = 60.0, at_least: str | None = None, side: SideName | None = None
    ) -> ReadPlan:
        return plan_read(
            self.table,
            self._store,
            lambda _table: ("iceberg", {}, self._lake),
            SystemClock(),
            lease_s,
            at_least,
        )

    def release_read(self, lease_id: LeaseId) -> None:
        pass


class Plugin(HotPlugin):
    name = "scripted"

    def __init__(self, lake: IcebergLakeStorage, log: ScriptedLog) -> None:
        self.options: Mapping[str, str] = {}
        self.lake, self._store = lake, ScriptedHotStore()
        self.log = self._store.create(log.table)
        self._coordinator = LakeLedger(log.table, self._store, lake)

    def store(self) -> ScriptedHotStore:
        return self._store

    def coordinator(self) -> LakeLedger:
        return self._coordinator

    def lake_options(self, table: TableInfo, side: SideName | None = None) -> tuple[str, Mapping[str, str]]:
        return "iceberg", {}

    def verify(self, *, deep: bool = True) -> Certificate:
        return verify_table(self, self.log.table.path, deep=deep, open_storage=lambda _plan: self.lake)


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Plugin]:
    with folder_lake(tmp_path) as lake:
        made = Plugin(lake, make_log(lake))
        made.store().write(made.log.table, B0, [row(n) for n in range(10)])
        made.store().write(made.log.table, B1, [row(10), row(11)])
        run(lake, made.log)
        yield made


def test_every_row_is_compared_by_its_offset(plugin: Plugin) -> None:
    certificate = plugin.verify()
    assert certificate.holds
    assert [(b.rows, b.compared) for b in certificate.buckets] == [(10, 10), (2, 2)]


def rewrite(plugin: Plugin, rows: pa.Table) -> None:
    """As another engine does it: its files do not record which offsets they hold."""
    plugin.lake.connection.load(plugin.log.table.path).overwrite(rows)


def read_lake(plugin: Plugin) -> pa.Table:
    return plugin.lake.connection.load(plugin.log.table.path).scan().to_arrow()


def test_rows_are_compared_by_value_after_a_foreign_rewrite(plugin: Plugin) -> None:
    rewrite(plugin, read_lake(plugin).sort_by([("id", "descending")]))
    certificate = plugin.verify()
    assert (certificate.verdict, certificate.buckets) == (CertificateVerdict.HOLDS, ())
    assert (certificate.rows, certificate.compared, certificate.only_counted) == (12, 12, 0)


def test_an_altered_row_of_a_foreign_rewrite_is_found(plugin: Plugin) -> None:
    rows = read_lake(plugin)
    names = ["other" if n == 7 else v for n, v in zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True)]
    rewrite(plugin, rows.set_column(rows.column_names.index("name"), rows.field("name"), pa.array(names)))
    certificate = plugin.verify()
    assert [(f.kind, f.count) for f in certificate.findings] == [(FindingKind.ALTERED, 1)]
    assert (certificate.verdict, certificate.is_failure) == (CertificateVerdict.BROKEN, True)


def test_values_that_the_log_no_longer_holds_are_not_checked(plugin: Plugin) -> None:
    rewrite(plugin, read_lake(plugin))
    plugin.store().expire(plugin.log.table, B0, 4)
    certificate = plugin.verify()
    assert (certificate.verdict, certificate.compared) == (CertificateVerdict.PARTLY_CHECKED, 8)
    assert certificate.beyond == ("values of 4 rows: the log does not hold them",)


@pytest.mark.parametrize(
    ("gone", "verdict"), [("id = 7", CertificateVerdict.BROKEN), ("id = 99", CertificateVerdict.NOT_CHECKED)]
)
def test_rows_that_are_only_counted_after_a_foreign_rewrite_are_not_said_to_hold(
    plugin: Plugin, gone: str, verdict: CertificateVerdict
) -> None:
    rows = plugin.lake.connection.load(plugin.log.table.path).scan(row_filter=f"not ({gone})").to_arrow()
    rewrite(plugin, rows)
    certificate = plugin.verify(deep=False)
    assert (certificate.verdict, certificate.holds, certificate.is_failure) == (verdict, False, True)
    assert certificate.buckets == ()
    assert certificate.rows == rows.num_rows
    missing = [(FindingKind.MISSING, 1)] if verdict is CertificateVerdict.BROKEN else []
    assert [(f.kind, f.count) for f in certificate.findings] == missing
    assert certificate.beyond[-1].startswith(
        f"{rows.num_rows} rows, which were counted and not compared (another engine wrote"
    )
