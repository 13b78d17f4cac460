# SPDX-License-Identifier: Apache-2.0
"""Where a Fluss table's lake is: the cluster's `datalake.<format>.*`, which Fluss puts into every table, as options of
our lake plugin.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakeward.config.options import TABLE_DATALAKE_ENABLED
from lakeward.errors import InvalidConfig, InvalidTable, PluginNotFound, UnsafeLake
from lakeward.hot.fluss.tables import FORMAT_PROPERTY
from lakeward.model import TableInfo
from lakeward.spi import find_lake_plugin


def check_tiered(table: TableInfo) -> None:
    """Raises `InvalidTable` for one that Fluss does not tier."""
    if table.descriptor.properties.get(TABLE_DATALAKE_ENABLED.key, "false").lower() != "true":
        raise not_tiered(table)


def not_tiered(table: TableInfo) -> InvalidTable:
    reason = "Fluss tiers only tables where it is true"
    return InvalidTable(table=str(table.path), field=TABLE_DATALAKE_ENABLED.key, value="false", reason=reason)


def lake_of(table: TableInfo, overrides: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """(format, options). `overrides` win. Raises `InvalidConfig`, `InvalidTable`, `UnsafeLake`."""
    properties = table.descriptor.properties
    name = properties.get(FORMAT_PROPERTY, "").lower()
    if not name:
        raise InvalidConfig(
            where=f"table {table.path}", reason=f"it has no {FORMAT_PROPERTY}: the cluster had no lake when it was made"
        )
    prefix = f"table.datalake.{name}."
    options = {k.removeprefix(prefix): v for k, v in properties.items() if k.startswith(prefix)}
    if not options:  # one that was tiered once keeps them
        check_tiered(table)
    try:
        plugin = find_lake_plugin(name)
        plugin.check_fluss_table(table)
        return name, {**plugin.fluss_options(options), **overrides}
    except PluginNotFound as error:
        raise UnsafeLake(lake=name, reason=f"{error}; leave this one to Fluss's Flink job") from error
