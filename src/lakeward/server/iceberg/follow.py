# SPDX-License-Identifier: Apache-2.0
"""Lake tables of this server's own tables, as other engines change them through its catalog."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    TableUpdate,
    UpgradeFormatVersionUpdate,
    update_table_metadata,
)

from lakeward.errors import InvalidRequest
from lakeward.lake.iceberg.meta.followed import plan_followed
from lakeward.model.schema import Column
from lakeward.model.table import TableInfo, TablePath
from lakeward.server.iceberg.call import Name

_SHAPE = (
    AddSchemaUpdate,
    SetCurrentSchemaUpdate,
    AddPartitionSpecUpdate,
    SetDefaultSpecUpdate,
    UpgradeFormatVersionUpdate,
)


@dataclass(frozen=True)
class Following:
    """`find`: the table whose lake table that is, in the shape that the lake has. `add`: gives it further columns."""

    find: Callable[[TablePath], TableInfo | None] = lambda path: None
    add: Callable[[TablePath, Sequence[Column]], object] = lambda path, columns: None

    def plan(self, name: Name, before: TableMetadata, updates: Sequence[TableUpdate]) -> list[Column]:
        """Columns to add once it is committed. Raises `InvalidAlter`."""
        table = self._table(name) if any(isinstance(u, _SHAPE) for u in updates) else None
        return [] if table is None else plan_followed(table, before, update_table_metadata(before, tuple(updates)))

    def check_rename(self, name: Name) -> None:
        """Raises `InvalidRequest`."""
        if self._table(name) is not None:
            reason = "it is the lake table of a table of this server, which would lose it; make a table of the new name"
            raise InvalidRequest(what=f"renaming {'.'.join(name)}", reason=reason)

    def _table(self, name: Name) -> TableInfo | None:
        return self.find(TablePath(*name)) if len(name) == 2 else None
