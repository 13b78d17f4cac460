# SPDX-License-Identifier: Apache-2.0
"""A lake format with its configuration: what the other interfaces of the plug point are opened from."""

from __future__ import annotations

from abc import ABC, abstractmethod

from lakeward.model import TableInfo
from lakeward.spi.capabilities import LakeCapabilities
from lakeward.spi.lake.catalog import LakeCatalog
from lakeward.spi.lake.committer import LakeCommitter
from lakeward.spi.lake.maintenance import LakeMaintenance
from lakeward.spi.lake.reader import LakeReader
from lakeward.spi.lake.writer import LakeWriter, WriteTask
from lakeward.spi.lakeerrors import TypedCalls


class LakeStorage(TypedCalls, ABC):
    """A lake format with its configuration. Cheap to make; connects on first use."""

    name: str
    capabilities: LakeCapabilities

    @abstractmethod
    def catalog(self) -> LakeCatalog:
        """Called by the server for DDL. May block on the catalog."""

    @abstractmethod
    def open_writer(self, task: WriteTask) -> LakeWriter:
        """Called in an executor, once per split and attempt. Does not go to the catalog: `task.handle` has all it
        needs.
        """

    @abstractmethod
    def open_committer(self, table: TableInfo) -> LakeCommitter:
        """Called by a round's driver. May block on the catalog. Raises `LakeUnavailable`, `LakeTableGone`."""

    @abstractmethod
    def open_reader(self, table: TableInfo) -> LakeReader:
        """Called by a round's driver, union reads and verify. May block. Raises `LakeUnavailable`, `LakeTableGone`."""

    @abstractmethod
    def open_maintenance(self, table: TableInfo) -> LakeMaintenance:
        """Called by orphan removal and expiry. May block. Raises `LakeUnavailable`, `LakeTableGone`."""

    def takes_one_writer(self, table: TableInfo) -> bool:
        """Must a bucket's rows of a round come from one writer? As the capabilities say, unless tables differ."""
        return self.capabilities.one_writer_per_bucket

    def check_shared(self, table: TableInfo) -> None:
        """Refuses a lake table that a Fluss cluster made as rounds do not write it. May block. Raises `InvalidTable`,
        `LakeUnavailable`, `LakeTableGone`."""
        return
