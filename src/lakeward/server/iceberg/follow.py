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
from lakeward.lake.iceberg.meta.followed import check_followed, is_fitting, plan_followed
from lakeward.model import ColumnChanges, TableInfo, TablePath
from lakeward.protocol.auth import Role, Token
from lakeward.server.iceberg.call import Name

_COLUMNS = (AddSchemaUpdate, SetCurrentSchemaUpdate)
_LAYOUT = (AddPartitionSpecUpdate, SetDefaultSpecUpdate, UpgradeFormatVersionUpdate)


@dataclass(frozen=True)
class Following:
    """`find`: the table whose lake table that is, in the shape that the lake has. `alter`: changes its columns, in its
    lakes first; False for a lake table whose columns are not its own, as a changelog's."""

    find: Callable[[TablePath], TableInfo | None] = lambda path: None
    alter: Callable[[TablePath, ColumnChanges], bool] = lambda path, changes: False

    def follow(
        self, name: Name, token: Token, before: TableMetadata, updates: Sequence[TableUpdate]
    ) -> Sequence[TableUpdate]:
        """Changes the table's columns as the updates would change the lake's; returns the updates that are left to
        commit. Raises `InvalidAlter`, `Forbidden`, and as ALTER does."""
        table = self._table(name) if any(isinstance(u, (*_COLUMNS, *_LAYOUT)) for u in updates) else None
        if table is None:
            return updates
        rest = [u for u in updates if not isinstance(u, _COLUMNS)]
        if len(rest) == len(updates) or not is_fitting(table, before):
            check_followed(table, before, update_table_metadata(before, tuple(updates)))
            return updates
        columns = tuple(u for u in updates if isinstance(u, _COLUMNS))
        changes = plan_followed(table, before, update_table_metadata(before, columns))
        if not changes:
            return updates
        if rest:
            reason = "columns of this table change in a commit of their own: send the other changes by another one"
            raise InvalidRequest(what=f"commit to {'.'.join(name)}", reason=reason)
        if changes.drop or changes.rename or changes.widen or changes.nullable or changes.after or changes.comments:
            token.check_role(Role.ADMIN, f"other changes of {'.'.join(name)}'s columns than new ones")
        if self.alter(table.path, changes):
            return []
        check_followed(table, before, update_table_metadata(before, columns))
        return updates

    def check_rename(self, name: Name) -> None:
        """Raises `InvalidRequest`."""
        if self._table(name) is not None:
            reason = "it is the lake table of a table of this server, which would lose it; make a table of the new name"
            raise InvalidRequest(what=f"renaming {'.'.join(name)}", reason=reason)

    def _table(self, name: Name) -> TableInfo | None:
        return self.find(TablePath(*name)) if len(name) == 2 else None
