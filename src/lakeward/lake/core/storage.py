# SPDX-License-Identifier: Apache-2.0
"""A lake format on the commit protocol: it opens a `LakeTable`, and rounds, reads and upkeep are given the rest."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic

from lakeward.lake.core.committer import CoreCommitter
from lakeward.lake.core.log import G
from lakeward.lake.core.maintenance import CoreMaintenance, NamingMaintenance
from lakeward.lake.core.reader import PositionReader
from lakeward.lake.core.table import LakeTable, PositionTable
from lakeward.model import TableInfo
from lakeward.spi import LakeCommitter, LakeMaintenance, LakeReader, LakeStorage, SupportsSnapshotNames


class CoreStorage(LakeStorage, Generic[G]):
    @abstractmethod
    def open_table(self, table: TableInfo) -> LakeTable[G]:
        """Cheap: loads nothing."""

    def open_committer(self, table: TableInfo) -> LakeCommitter:
        return CoreCommitter(self.open_table(table))

    def open_maintenance(self, table: TableInfo) -> LakeMaintenance:
        opened = self.open_table(table)
        names = opened.log
        return NamingMaintenance(opened, names) if isinstance(names, SupportsSnapshotNames) else CoreMaintenance(opened)


class PositionStorage(CoreStorage[G]):
    """Of a format whose rows are deleted by position."""

    @abstractmethod
    def open_table(self, table: TableInfo) -> PositionTable[G]: ...

    def open_reader(self, table: TableInfo) -> LakeReader:
        return PositionReader(self.open_table(table))
