# SPDX-License-Identifier: Apache-2.0
"""What other engines are about to change in a lake table's columns: can its table follow? Pure."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata

from lakeward.errors import InvalidAlter, LakeSchemaBroken, UnsupportedType
from lakeward.lake.iceberg.meta.diff import check_fits
from lakeward.lake.iceberg.meta.foreign import to_model_type
from lakeward.model.schema import SYSTEM_COLUMNS, Column
from lakeward.model.table import TableInfo


def plan_followed(table: TableInfo, before: TableMetadata, after: TableMetadata) -> list[Column]:
    """Columns that the table is to get as well. Raises `InvalidAlter` where rounds could not go on; what was broken
    before may be changed as anybody likes."""
    try:
        check_fits(table, after)
    except LakeSchemaBroken as broken:
        if not _fits(table, before):
            return []
        reason = f"{broken.diff}: rounds could not go on. Rename, drop and retype columns by a new table"
        raise InvalidAlter(table=str(table.path), change="its lake table's columns", reason=reason) from broken
    known = {*table.schema.names, *SYSTEM_COLUMNS, *(f.name for f in before.schema().fields)}
    added = [f for f in after.schema().fields if f.name not in known]
    try:
        return [Column(name=f.name, type=to_model_type(f.field_type, f.name), comment=f.doc) for f in added]
    except UnsupportedType as error:
        raise InvalidAlter(table=str(table.path), change="add column", reason=str(error)) from error


def _fits(table: TableInfo, metadata: TableMetadata) -> bool:
    try:
        check_fits(table, metadata)
    except LakeSchemaBroken:
        return False
    return True
