# SPDX-License-Identifier: Apache-2.0
"""The interface from the intake of rows to a table's contract: add columns, or quarantine rows that do not fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from lakeward.config.options import SchemaContract
from lakeward.model import Column, TableInfo
from lakeward.protocol.quarantine import BadRow


class RowContract(ABC):
    """Thread-safe; every method may block on the disk or a lake."""

    @abstractmethod
    def of(self, table: TableInfo) -> SchemaContract: ...

    @abstractmethod
    def add_columns(self, table: TableInfo, columns: Sequence[Column]) -> TableInfo:
        """The table with these columns, which others may have added by now. Raises `InvalidAlter` where the contract
        does not allow them, and as ALTER does."""

    @abstractmethod
    def find_kept(self, table: TableInfo, writer_id: int) -> Mapping[int, str]:
        """Place -> id of rows that an earlier try of the same request kept."""

    @abstractmethod
    def keep(
        self, table: TableInfo, rows: Sequence[BadRow], source: str, operation: str, writer_id: int | None
    ) -> Sequence[str]:
        """Durable when it returns, with an id for each. Raises `TooManyBadRows`, and other errors where the quarantine
        fails: the table's other rows are stored then."""


class StrictContract(RowContract):
    """Refuses rows."""

    def of(self, table: TableInfo) -> SchemaContract:
        return SchemaContract.STRICT

    def add_columns(self, table: TableInfo, columns: Sequence[Column]) -> TableInfo:
        return table

    def find_kept(self, table: TableInfo, writer_id: int) -> Mapping[int, str]:
        return {}

    def keep(
        self, table: TableInfo, rows: Sequence[BadRow], source: str, operation: str, writer_id: int | None
    ) -> Sequence[str]:
        raise NotImplementedError
