# SPDX-License-Identifier: Apache-2.0
"""Rules on a table's properties, checked before anything is created or altered."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lakeward.config import options
from lakeward.config.config import Config, find_nearest
from lakeward.config.kinds import render_duration
from lakeward.config.option import Scope, variable_name
from lakeward.config.sources import Setting
from lakeward.errors import InvalidAlter, InvalidTable, UnknownOption
from lakeward.model import (
    DEFAULT_SIDE,
    FIXED,
    FIXED_FOREVER,
    Content,
    PartitionKey,
    SideName,
    TableDescriptor,
    TimestampLtzType,
    changelog_side,
    named_sides,
)

SIDE = "table.datalake."
"""Prefixes of side properties; `OF_TABLES` are set for all sides of a table at once."""

OF_TABLES = (
    "table.datalake.enabled",
    "table.datalake.format",
    "table.datalake.lakes",
    "table.datalake.changelog",
    "table.datalake.readers",
    "table.datalake.system-columns",
)
_NUMBERS = {
    "history.expire.max-snapshot-age-ms": 0,
    "history.expire.min-snapshots-to-keep": 1,
    "write.target-file-size-bytes": 1,
    "write.parquet.page-size-bytes": 1,
    "write.parquet.dict-size-bytes": 1,
    "write.parquet.row-group-size-bytes": 1,
    "write.parquet.row-group-limit": 1,
    "write.metadata.previous-versions-max": 1,
    "commit.retry.num-retries": 0,
    "commit.retry.total-timeout-ms": 0,
    "checkpointInterval": 1,
    "targetFileSize": 1,
    "hoodie.parquet.max.file.size": 1,
}
"""Numeric lake-table properties that rounds read, without the format prefix, and the minimum of each. With an invalid
value every round would fail or use the default."""

LAKE_PREFIXES = ("iceberg", "paimon", "delta", "lance", "hudi")
"""Properties that lake formats read as they are."""

TIME_UNIT = options.TABLE_AUTO_PARTITION_TIME_UNIT.key

DEFAULT_LAKE = DEFAULT_SIDE.lake
"""The name of the lake that `datalake.format` stands for."""


def check_properties(
    table: str,
    properties: Mapping[str, str],
    descriptor: TableDescriptor | None = None,
    server: Config | None = None,
) -> Config:
    """The table's configuration. `table.*` keys must be known and right; others (`iceberg.x`, one's own) pass as they
    are.

    Raises `UnknownOption`, `InvalidOptionValue`, and `InvalidTable` where two of them do not go together."""
    config = (server or Config()).for_table(properties)
    _check_ttl(table, config)
    _check_sides(table, properties)
    if config.get(options.TABLE_AUTO_PARTITION_ENABLED):
        _check_auto_partition(table, config, descriptor, has_unit=TIME_UNIT in properties)
    return config


def check_given(table: str, properties: Mapping[str, str | None]) -> None:
    """Checks properties that a person sets when a table is created or altered. Existing tables may have them. Raises
    `InvalidTable`."""
    for key, value in properties.items():
        option = options.ALL.get(key)
        if option is not None and option.scope is not Scope.TABLE:
            whose = {Scope.JOB: "tiering jobs", Scope.SERVER: "the server", Scope.CLIENT: "clients"}[option.scope]
            reason = f"it is a setting of {whose}, for lakeward.toml or {variable_name(key)}, and not of a table"
            raise InvalidTable(table=table, field=key, value=value or "", reason=reason)
        least = _NUMBERS.get(key.partition(".")[2])
        if least is not None and value is not None and not (value.isdecimal() and int(value) >= least):
            raise InvalidTable(
                table=table, field=key, value=value, reason=f"a whole number, {least} or more, is allowed"
            )


def check_known(table: str, changes: Mapping[str, str | None], properties: Mapping[str, str]) -> None:
    """Refuses keys that a person seems to have misspelled: nothing would read them. One's own have a prefix of their
    own, and what the table has already stays. Raises `UnknownOption`."""
    for key, value in changes.items():
        is_of_lake = key.partition(".")[0] in LAKE_PREFIXES
        if value is None or key in properties or key in options.ALL or key.startswith("table.") or is_of_lake:
            continue
        nearest = find_nearest(key, (option.key for option in options.ALL.values() if option.scope is Scope.TABLE))
        if nearest is not None or "." not in key:
            raise UnknownOption(where=f"table {table}", key=key, nearest=nearest)


def check_alter(table: str, changes: Mapping[str, str | None]) -> None:
    """Refuses changes of properties that are fixed when a table is created. Raises `InvalidAlter`, `UnknownOption`."""
    Config().for_table({key: value for key, value in changes.items() if value is not None})
    for key in changes:
        if key in FIXED:
            raise InvalidAlter(table=table, change=key, reason=f"the {FIXED[key]} is {FIXED_FOREVER}")
        option = options.ALL.get(key)
        if option is not None and option.scope is Scope.TABLE and not option.alterable:
            raise InvalidAlter(table=table, change=f"property {key}", reason=f"it is {FIXED_FOREVER}")


def lakes_of(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The lakes that a table's own properties name, in order; none: that of `datalake.format`. What the server sets is
    the default of new tables, which keep it as their own."""
    return tuple(side.lake for side in named_sides(properties))


def sides_named(properties: Mapping[str, str]) -> tuple[SideName, ...]:
    """Every side that a table's own properties name: those with its state, in order, then its changelog."""
    changes = changelog_side(properties)
    return (*(SideName(lake) for lake in lakes_of(properties) or (DEFAULT_LAKE,)), *([changes] if changes else ()))


def lakes_in_use(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Lakes that a table's rows are meant to reach, whatever the server's configuration says now: none where it was
    made without one, or was switched off itself."""
    if properties.get(options.TABLE_DATALAKE_ENABLED.key, "").strip().lower() == "false":
        return ()
    had_default = options.TABLE_DATALAKE_FORMAT.key in properties
    named = (side.lake for side in sides_named(properties) if side.lake != DEFAULT_LAKE or had_default)
    return tuple(dict.fromkeys(named))


def side_prefix(side: SideName) -> str:
    """Prefix of the properties of one side."""
    if side.content is Content.CHANGELOG:
        return f"{options.TABLE_DATALAKE_CHANGELOG.key}."
    return f"{options.TABLE_DATALAKE_LAKES.key}.{side.lake}."


def side_properties(properties: Mapping[str, str], side: SideName) -> dict[str, str]:
    """Properties that apply to one side of a table, without their prefix."""
    prefix = side_prefix(side)
    own = {k: v for k, v in properties.items() if k.startswith(prefix) and k not in options.ALL}
    return {f"{SIDE}{k.removeprefix(prefix)}": v for k, v in own.items()}


def _check_sides(table: str, properties: Mapping[str, str]) -> None:
    """Raises `InvalidTable` for lakes named twice, and for properties of a side that the table has not."""
    key, names = options.TABLE_DATALAKE_LAKES.key, lakes_of(properties)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidTable(
            table=table,
            field=key,
            value=", ".join(names),
            reason=f"lake {twice[0]} is named twice: two sides would write one lake table",
        )
    for name in properties:
        lake, dot, _ = name.removeprefix(f"{key}.").partition(".")
        if name.startswith(f"{key}.") and (not dot or lake not in (names or (DEFAULT_LAKE,))):
            reason = f"the table has no side in lake {lake}; {key} names {', '.join(names) or 'none'}"
            raise InvalidTable(table=table, field=name, value=properties[name], reason=reason)
    changes = options.TABLE_DATALAKE_CHANGELOG.key
    for name in properties if changelog_side(properties) is None else ():
        if name.startswith(f"{changes}."):
            reason = f"the table has no changelog: {changes} names the lake that gets one"
            raise InvalidTable(table=table, field=name, value=properties[name], reason=reason)
    for side in sides_named(properties):
        for name, value in side_properties(properties, side).items():
            if name in OF_TABLES:
                raise InvalidTable(
                    table=table, field=name, value=value, reason="it is said of a table, not of one side"
                )
            Config([Setting(name, value, f"table property {side_prefix(side)}{name.removeprefix(SIDE)}")])


def _check_ttl(table: str, config: Config) -> None:
    local, ttl = config.get(options.TABLE_LOG_LOCAL_TTL), config.get(options.TABLE_LOG_TTL)
    if local is not None and timedelta(0) < ttl < local:
        reason = f"it is above table.log.ttl ({render_duration(ttl)})"
        raise InvalidTable(
            table=table, field=options.TABLE_LOG_LOCAL_TTL.key, value=render_duration(local), reason=reason
        )


def _check_auto_partition(table: str, config: Config, descriptor: TableDescriptor | None, *, has_unit: bool) -> None:
    partition_keys = () if descriptor is None else descriptor.partition_keys
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
    assert descriptor is not None
    time = descriptor.partitioning[partition_keys.index(key or partition_keys[0])]
    if time.unit is not None:
        _check_time(table, config, descriptor, time, has_unit=has_unit)


def _check_time(table: str, config: Config, descriptor: TableDescriptor, key: PartitionKey, *, has_unit: bool) -> None:
    """Checks the options of partitions by the time of a column, whose unit and time zone the column decides."""
    unit, zone = config.get(options.TABLE_AUTO_PARTITION_TIME_UNIT), config.get(options.TABLE_AUTO_PARTITION_TIME_ZONE)
    if has_unit and str(unit) != str(key.unit):
        reason = f"the table is partitioned by {key}: leave it out"
        raise InvalidTable(table=table, field=TIME_UNIT, value=str(unit), reason=reason)
    if isinstance(descriptor.schema.column(key.column).type, TimestampLtzType) and zone != "UTC":
        reason = f"{key.column} is a TIMESTAMP_LTZ, whose partitions are times of UTC: leave it out"
        raise InvalidTable(table=table, field=options.TABLE_AUTO_PARTITION_TIME_ZONE.key, value=zone, reason=reason)
