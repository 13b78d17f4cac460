# SPDX-License-Identifier: Apache-2.0
"""Finds the table a request means: this very life of it, as of the schema that the peer knows."""

from __future__ import annotations

from dataclasses import replace

from lakeward.errors import InvalidRequest, TableNotFound
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model.ids import TableId
from lakeward.model.schema import Schema
from lakeward.model.table import TableInfo, TablePath


def find_table(store: EmbeddedStore, path: TablePath, table_id: TableId | None) -> TableInfo:
    """Raises `TableNotFound`, also when the table was dropped and made again since the peer looked."""
    table = store.load_table(path)
    if table_id is not None and table.table_id != table_id:
        raise TableNotFound(
            table=f"{path} with id {table_id} (it was dropped; the one of that name now has id {table.table_id})"
        )
    return table


def as_of(table: TableInfo, schema_id: int, width: int) -> TableInfo:
    """The table as a peer with an older schema knows it. Columns are only ever added last, so a prefix is
    what it had.
    """
    schema = table.schema
    if schema_id == schema.schema_id:
        return table
    if not (0 < schema_id < schema.schema_id and 0 < width <= len(schema.columns)):
        raise InvalidRequest(
            what=f"schema {schema_id} with {width} columns",
            reason=f"table {table.path} is at schema {schema.schema_id}",
        )
    older = Schema(columns=schema.columns[:width], schema_id=schema_id)
    return table.with_descriptor(replace(table.descriptor, schema=older))
