# SPDX-License-Identifier: Apache-2.0
"""What tables of Fluss may be that Lakeward does not tier: refused at the table, in words."""

from __future__ import annotations

from lakeward.errors import InvalidTable
from lakeward.model.table import TableInfo

LOG_FORMAT = "table.log.format"
VALUE_LAYOUT = "table.kv.value-layout-version"
KV_TTL = "table.kv.ttl"
LAKE_NAMES = ("table.datalake.database-name", "table.datalake.table-name")


def check_supported(table: TableInfo) -> None:
    """Raises `InvalidTable`."""
    properties = table.descriptor.properties

    def refuse(field: str, value: str, reason: str) -> InvalidTable:
        return InvalidTable(table=str(table.path), field=field, value=value, reason=reason)

    form, layout = properties.get(LOG_FORMAT, "arrow").lower(), properties.get(VALUE_LAYOUT, "1")
    if form != "arrow":
        raise refuse(
            LOG_FORMAT, form, "only logs in Arrow format are read; Fluss's default, set when the table is created"
        )
    if layout != "1" and table.is_pk:
        raise refuse(VALUE_LAYOUT, layout, "only values of layout 1 are read; leave this table to Fluss's Flink job")
    if table.is_pk and KV_TTL in properties:
        reason = "rows that Fluss forgets by their age would stay in the lake; leave this table to Fluss's Flink job"
        raise refuse(KV_TTL, properties[KV_TTL], reason)
    for field, own in zip(LAKE_NAMES, (table.path.database, table.path.table), strict=True):
        if properties.get(field, own) != own:
            raise refuse(field, properties[field], f"the lake table must be called {table.path}, as the table is")
