# SPDX-License-Identifier: Apache-2.0
"""Paimon as a `LakeStorage`."""

from __future__ import annotations

from collections.abc import Callable

from lakeward.errors import InvalidTable
from lakeward.lake.core.storage import CoreStorage
from lakeward.lake.core.table import LakeTable
from lakeward.lake.paimon.catalog import PaimonLakeCatalog
from lakeward.lake.paimon.changes import PaimonChanges, PaimonGround
from lakeward.lake.paimon.files import PaimonFiles
from lakeward.lake.paimon.log import PaimonSnapshotLog
from lakeward.lake.paimon.meta.connection import PaimonConnection
from lakeward.lake.paimon.meta.intents import PaimonIntentStore
from lakeward.lake.paimon.meta.layout import is_clean
from lakeward.lake.paimon.meta.mapping import SYSTEM_FIELDS
from lakeward.lake.paimon.reader import PaimonLakeReader
from lakeward.lake.paimon.rewrite import rewrite_group
from lakeward.lake.paimon.writer import PaimonLakeWriter
from lakeward.model import BucketFunction, ColumnChange, TableInfo
from lakeward.spi import DeleteEncoding, LakeCapabilities, RewriteResult, RewriteTask, WriteTask, is_of_fluss

CAPABILITIES = LakeCapabilities(
    delete_encodings=frozenset({DeleteEncoding.NATIVE}),
    one_writer_per_bucket=False,
    bucket_function=BucketFunction.PAIMON,
    bucket_function_needed=True,
    clean_tables=True,
    column_changes=frozenset(ColumnChange) - {ColumnChange.DEFAULT, ColumnChange.FIELDS},
)


class PaimonLakeStorage(CoreStorage[PaimonGround]):
    name = "paimon"
    capabilities = CAPABILITIES

    def __init__(self, connection: PaimonConnection) -> None:
        self.connection = connection

    def catalog(self) -> PaimonLakeCatalog:
        return PaimonLakeCatalog(self.connection)

    def open_writer(self, task: WriteTask) -> PaimonLakeWriter:
        return PaimonLakeWriter(self.connection, task)

    def open_table(self, table: TableInfo) -> LakeTable[PaimonGround]:
        log, files = PaimonSnapshotLog(self.connection, table), PaimonFiles(self.connection, table)
        return LakeTable(table, log, files, PaimonChanges(table), self.capabilities.delete_encodings)

    def open_reader(self, table: TableInfo) -> PaimonLakeReader:
        return PaimonLakeReader(self.open_table(table))

    def takes_one_writer(self, table: TableInfo) -> bool:
        """Whether one writer must write a bucket: a PK table that Fluss made, or that has no offsets, is ordered by
        sequence numbers, which each writer continues from the last commit."""
        return table.is_pk and (is_of_fluss(table.descriptor) or table.descriptor.is_clean)

    def check_shared(self, table: TableInfo) -> None:
        lake_table = self.connection.load(table.path)
        names = {f.name for f in lake_table.table_schema.fields}
        gone = [] if is_clean(lake_table) else [name for name, _ in SYSTEM_FIELDS if name not in names]
        if gone:
            reason = "rounds need all of them, or none; leave this one to Fluss's Flink job"
            raise InvalidTable(
                table=str(table.path), field="lake columns", value=f"no {', '.join(gone)}", reason=reason
            )

    def open_intents(self, table: TableInfo) -> PaimonIntentStore:
        return PaimonIntentStore(self.connection, table)

    def rewrite(self, task: RewriteTask, is_due: Callable[[], bool] = lambda: False) -> RewriteResult | None:
        return rewrite_group(self.connection, task, is_due)
