# SPDX-License-Identifier: Apache-2.0
"""One Iceberg table as the commit protocol uses it."""

from __future__ import annotations

from lakeward.lake.core.table import LakeTable
from lakeward.lake.iceberg.changes import IcebergChanges
from lakeward.lake.iceberg.commit.ground import IcebergGround
from lakeward.lake.iceberg.files import IcebergFiles
from lakeward.lake.iceberg.log import IcebergSnapshotLog
from lakeward.lake.iceberg.meta.connection import IcebergConnection
from lakeward.model import TableInfo
from lakeward.spi import DeleteEncoding

ENCODINGS = frozenset({DeleteEncoding.POSITIONS, DeleteEncoding.EQUALITY})


def open_table(connection: IcebergConnection, log: IcebergSnapshotLog, info: TableInfo) -> LakeTable[IcebergGround]:
    files, changes = IcebergFiles(connection, info, log), IcebergChanges(connection, info, log)
    return LakeTable(info, log, files, changes, ENCODINGS)
