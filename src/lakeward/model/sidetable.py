# SPDX-License-Identifier: Apache-2.0
"""The lake table of a side: the table itself, or its changelog, which is a log table with one column more. Pure."""

from __future__ import annotations

from dataclasses import replace

from lakeward.errors import InvalidTable
from lakeward.model.schema import CHANGE_TYPE, CHANGE_TYPE_ID, Column, Schema
from lakeward.model.side import CHANGELOG_PROPERTY, Content, SideName
from lakeward.model.table import TableInfo
from lakeward.model.tablepath import TablePath
from lakeward.model.types import StringType

CHANGELOG_SUFFIX = "__changelog"
CLEAN = "table.datalake.system-columns"
"""A property that changelogs do not follow: without its offset a change says nothing."""

_CHANGE_COLUMN = Column(
    name=CHANGE_TYPE,
    type=StringType(nullable=False),
    comment="insert, update_before, update_after or delete",
    column_id=CHANGE_TYPE_ID,
)


def side_table(table: TableInfo, side: SideName | None) -> TableInfo:
    """The table as the side's lake has it: its name, its columns, and whether rows are ever replaced there."""
    if side is None or side.content is Content.STATE:
        return table
    descriptor, schema = table.descriptor, table.schema
    changes = replace(
        descriptor,
        # First: columns that are added come last in every format.
        schema=Schema(
            columns=(_CHANGE_COLUMN, *schema.columns), schema_id=schema.schema_id, highest_id=schema.highest_id
        ),
        primary_key=(),
        properties={k: v for k, v in descriptor.properties.items() if k != CLEAN},
        comment=f"every change of {table.path}",
    )
    return replace(table, path=changelog_path(table.path), descriptor=changes)


def is_changelog(schema: Schema) -> bool:
    """Is this the schema that `side_table` gives a changelog's lake table?"""
    return schema.names[0] == CHANGE_TYPE


def changelog_path(path: TablePath) -> TablePath:
    """Raises `InvalidTable` where the name would be too long."""
    try:
        return TablePath(path.database, f"{path.table}{CHANGELOG_SUFFIX}")
    except InvalidTable as error:
        reason = f"its changelog would be called {path.table}{CHANGELOG_SUFFIX}, and {error.reason}"
        raise InvalidTable(table=str(path), field=CHANGELOG_PROPERTY, value=path.table, reason=reason) from None
