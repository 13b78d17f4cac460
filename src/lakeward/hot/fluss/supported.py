# SPDX-License-Identifier: Apache-2.0
"""Fluss tables that Lakeward does not tier: each is refused with the reason."""

from __future__ import annotations

from lakeward.config import options
from lakeward.config.options.choices import LogFormat
from lakeward.errors import InvalidTable
from lakeward.hot.fluss.kv.kvrows import TAG_BYTES
from lakeward.hot.fluss.tables import OWN_BUCKETS, VALUE_LAYOUT, value_layout
from lakeward.model import CHANGELOG_PROPERTY, LAKES_PROPERTY, TableInfo, changelog_side, named_sides

KV_TTL = "table.kv.ttl"
LAKE_NAMES = ("table.datalake.database-name", "table.datalake.table-name")


def check_supported(table: TableInfo) -> None:
    """Raises `InvalidTable`."""
    properties = table.descriptor.properties

    def refuse(field: str, value: str, reason: str) -> InvalidTable:
        return InvalidTable(table=str(table.path), field=field, value=value, reason=reason)

    log_format = options.TABLE_LOG_FORMAT
    form, layout = properties.get(log_format.key, log_format.default).lower(), value_layout(table)
    if form != LogFormat.ARROW:
        raise refuse(
            log_format.key, form, "only logs in Arrow format are read; Fluss's default, set when the table is created"
        )
    if table.is_pk and layout not in TAG_BYTES:
        reason = f"only values of layouts {' and '.join(TAG_BYTES)} are read; leave this table to Fluss's Flink job"
        raise refuse(VALUE_LAYOUT, layout, reason)
    if table.is_pk and KV_TTL in properties:
        reason = "rows that Fluss forgets by their age would stay in the lake; leave this table to Fluss's Flink job"
        raise refuse(KV_TTL, properties[KV_TTL], reason)
    if OWN_BUCKETS in properties:
        reason = f"the table has {table.descriptor.bucket_count}, and all its partitions must have as many"
        raise refuse("buckets of a partition", properties[OWN_BUCKETS], reason)
    if changelog_side(properties) is not None:
        reason = "changelogs are kept of tables of a Lakeward server; take the property away, and the table is tiered"
        raise refuse(CHANGELOG_PROPERTY, properties[CHANGELOG_PROPERTY], reason)
    if named_sides(properties):
        reason = "a table of Fluss has the cluster's one lake; take the property away, and the table is tiered"
        raise refuse(LAKES_PROPERTY, properties[LAKES_PROPERTY], reason)
    for field, path_part in zip(LAKE_NAMES, (table.path.database, table.path.table), strict=True):
        if properties.get(field, path_part) != path_part:
            raise refuse(field, properties[field], f"the lake table must be called {table.path}, as the table is")
