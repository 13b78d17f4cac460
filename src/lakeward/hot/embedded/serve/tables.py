# SPDX-License-Identifier: Apache-2.0
"""Finds the table a request means: this very life of it, at the schema that the peer knows."""

from __future__ import annotations

from lakeward.errors import TableNotFound
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import TableId, TableInfo, TablePath


def find_table(store: EmbeddedStore, path: TablePath, table_id: TableId | None) -> TableInfo:
    """Raises `TableNotFound`, also when the table was dropped and made again since the peer looked."""
    table = store.load_table(path)
    if table_id is not None and table.table_id != table_id:
        raise TableNotFound(
            table=f"{path} with id {table_id} (it was dropped; the one of that name now has id {table.table_id})"
        )
    return table


def find_planned(store: EmbeddedStore, path: TablePath, table_id: TableId | None, schema_id: int) -> TableInfo:
    """The table at the schema for which a peer made its request. Raises as `find_table`, and `InvalidRequest`."""
    return store.hot_table(find_table(store, path, table_id)).at_schema(schema_id)
