# SPDX-License-Identifier: Apache-2.0
"""Where the live warehouse finds tables: a hot store, the lake tables of its tables, and the leases that keep both
readable. A server has one for its own store, a console one for a Fluss cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from lakeward.model import Bucket, CutEnds, LakeBase, TableId, TableInfo, TablePath
from lakeward.server.live.chunks import LiveTarget
from lakeward.spi import HotStore, LakeStorage, LogBounds


class LiveEntry(ABC):
    """A table that has an Iceberg lake. `info`: as it was when the entry was looked up."""

    info: TableInfo

    @abstractmethod
    def check_joined(self) -> None:
        """Raises `TableBusy` where lake and log do not join: the answer would lack rows, or have some twice."""

    @abstractmethod
    def target(self) -> LiveTarget:
        """The table with its newest schema. Called after log ends were frozen, so that no record below them has a newer
        one. Raises `TableNotFound`."""

    @abstractmethod
    def hold(self, base: LakeBase) -> None:
        """Keeps a snapshot of the lake, and the log above it, readable for `live.keep`, as far as the store can. Called
        under the table's lock. Raises `SnapshotGone`."""


class LiveSource(ABC):
    """Thread-safe."""

    store: HotStore
    is_exact: ClassVar[bool] = True
    """Whether `freeze` takes all ends at one instant; else they are those of the time that it took."""

    @abstractmethod
    def find(self, path: TablePath) -> LiveEntry | None:
        """None: the name belongs to no table of the store, or to one without an Iceberg lake here."""

    @abstractmethod
    def find_path(self, table_id: TableId) -> TablePath | None:
        """None: the table was dropped."""

    @abstractmethod
    def freeze(self, tables: Sequence[TableInfo] | None) -> Mapping[TableId, CutEnds]:
        """Log ends of these tables at one time, or of all."""

    @abstractmethod
    def bounds(self, table: TableInfo) -> Mapping[Bucket, LogBounds]:
        """Bounds of the table's logs as of now."""

    @abstractmethod
    def ask_round(self, table: TableInfo) -> None:
        """Asks for a round of a table whose tail is too long to be shown. Never raises."""

    @abstractmethod
    def find_lake(self, table_id: TableId, recorded: TableInfo | None, lake: str) -> tuple[TableInfo, LakeStorage]:
        """See `LiveFiles.sweep`. A table that was dropped may still have its lake table."""

    @abstractmethod
    def forget(self, table_id: TableId) -> None:
        """The table was dropped: releases what `hold` keeps for it."""
