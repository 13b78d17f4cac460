# SPDX-License-Identifier: Apache-2.0
"""Rules on a table's properties, checked before anything is created or altered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lakeward.config import options
from lakeward.config.config import Config
from lakeward.config.kinds import render_duration
from lakeward.config.option import Scope
from lakeward.errors import InvalidAlter, InvalidTable
from lakeward.model.newtable import FIXED


def check_properties(
    table: str, properties: Mapping[str, str], partition_keys: Sequence[str] = (), server: Config | None = None
) -> Config:
    """The table's configuration. `table.*` keys must be known and right; others (`iceberg.x`, one's own) pass as they
    are.

    Raises `UnknownOption`, `InvalidOptionValue`, and `InvalidTable` where two of them do not go together."""
    config = (server or Config()).for_table(properties)
    _check_ttl(table, config)
    if config.get(options.TABLE_AUTO_PARTITION_ENABLED):
        _check_auto_partition(table, config, partition_keys)
    return config


def check_alter(table: str, changes: Mapping[str, str | None]) -> None:
    """Refuses changes of properties that are fixed when a table is created. Raises `InvalidAlter`, `UnknownOption`."""
    Config().for_table({key: value for key, value in changes.items() if value is not None})
    for key in changes:
        if key in FIXED:
            raise InvalidAlter(
                table=table, change=key, reason=f"the {FIXED[key]} is fixed when the table is created; make a new one"
            )
        option = options.ALL.get(key)
        if option is not None and option.scope is Scope.TABLE and not option.alterable:
            raise InvalidAlter(table=table, change=f"property {key}", reason="it is fixed when the table is created")


def _check_ttl(table: str, config: Config) -> None:
    local, ttl = config.get(options.TABLE_LOG_LOCAL_TTL), config.get(options.TABLE_LOG_TTL)
    if local is not None and timedelta(0) < ttl < local:
        reason = f"it is above table.log.ttl ({render_duration(ttl)})"
        raise InvalidTable(
            table=table, field=options.TABLE_LOG_LOCAL_TTL.key, value=render_duration(local), reason=reason
        )


def _check_auto_partition(table: str, config: Config, partition_keys: Sequence[str]) -> None:
    key = config.get(options.TABLE_AUTO_PARTITION_KEY)
    field = options.TABLE_AUTO_PARTITION_KEY.key
    if not partition_keys:
        raise InvalidTable(
            table=table,
            field=options.TABLE_AUTO_PARTITION_ENABLED.key,
            value="true",
            reason="the table has no partition key",
        )
    if key is None and len(partition_keys) > 1:
        raise InvalidTable(
            table=table, field=field, value="", reason=f"name which of {', '.join(partition_keys)} holds the time"
        )
    if key is not None and key not in partition_keys:
        raise InvalidTable(
            table=table, field=field, value=key, reason=f"it is none of the partition keys {', '.join(partition_keys)}"
        )
    zone = config.get(options.TABLE_AUTO_PARTITION_TIME_ZONE)
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        reason = "no such time zone is known on this machine"
        raise InvalidTable(
            table=table, field=options.TABLE_AUTO_PARTITION_TIME_ZONE.key, value=zone, reason=reason
        ) from None
