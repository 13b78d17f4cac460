# SPDX-License-Identifier: Apache-2.0
"""The lakes of the server's configuration: their names, formats and settings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from lakeward.config import options
from lakeward.config.config import Config
from lakeward.config.kinds import word_list
from lakeward.config.sources import Setting
from lakeward.config.tables import DEFAULT_LAKE, OF_TABLES, SIDE
from lakeward.errors import InvalidConfig

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_TABLE = "table."


@dataclass(frozen=True, kw_only=True)
class LakeConfig:
    """`enabled` false with a format: tables take that format's bucket function at birth, and nothing is tiered.
    `defaults` are `table.datalake.*` options of tables in this lake that do not say otherwise."""

    format: str
    enabled: bool
    settings: dict[str, str]
    name: str = DEFAULT_LAKE
    defaults: dict[str, str] = field(default_factory=dict)
    databases: tuple[str, ...] = ()
    """Patterns of those whose tenants may name it; empty: all of them."""

    def is_open_to(self, database: str) -> bool:
        return not self.databases or any(fnmatchcase(database, pattern) for pattern in self.databases)


def load_lakes(config: Config) -> dict[str, LakeConfig]:
    """Name -> lake, the one of tables that name none first. Raises `InvalidConfig` for half-written ones,
    `InvalidOptionValue` and `UnknownOption` for defaults that make no sense."""
    short, lakes = _load_short(config), _load_named(config)
    if short is not None and DEFAULT_LAKE in lakes:
        raise InvalidConfig(
            where=f"lakes.{DEFAULT_LAKE}", reason="datalake.format says the same lake in short; keep one of the two"
        )
    if short is not None:
        lakes[DEFAULT_LAKE] = short
    first = _find_default(config, lakes)
    return {} if first is None else {first: lakes.pop(first), **lakes}


def load_lake_config(config: Config) -> LakeConfig | None:
    """The lake of tables that name none. None: this server has no lake. Raises as `load_lakes` does."""
    return next(iter(load_lakes(config).values()), None)


def _load_short(config: Config) -> LakeConfig | None:
    name, enabled = config.get(options.DATALAKE_FORMAT), config.get(options.DATALAKE_ENABLED)
    lake_settings = config.below("datalake.")
    if name is None:
        if enabled and not config.below("lakes."):
            raise InvalidConfig(
                where=config.where(options.DATALAKE_ENABLED),
                reason="datalake.enabled is true and datalake.format is not set",
            )
        if lake_settings:
            raise InvalidConfig(
                where="datalake", reason=f"datalake.{next(iter(lake_settings))} is set and datalake.format is not"
            )
        return None
    for key in lake_settings:
        if not key.startswith(f"{name}."):
            raise InvalidConfig(where="datalake", reason=f"datalake.{key} is no setting of datalake.format = {name}")
    return LakeConfig(format=name, enabled=enabled is not False, settings=config.below(f"datalake.{name}."))


def _load_named(config: Config) -> dict[str, LakeConfig]:
    given: dict[str, dict[str, str]] = {}
    for key, value in config.below("lakes.").items():
        name, _, setting = key.partition(".")
        given.setdefault(name, {})[setting] = value
    return {name: _load_one(name, body, config) for name, body in given.items()}


def _load_one(name: str, body: dict[str, str], config: Config) -> LakeConfig:
    where = f"lakes.{name}"
    if not _NAME.fullmatch(name):
        reason = f"{name!r} is no name of a lake: small letters, digits and - are, 63 of them at most"
        raise InvalidConfig(where=where, reason=reason)
    if not body.get("format", "").strip():
        raise InvalidConfig(where=where, reason="it says no format: iceberg, or another that is installed")
    settings = {k: v for k, v in body.items() if k not in ("format", "pool", "databases") and not k.startswith(_TABLE)}
    defaults = {k: v for k, v in body.items() if k.startswith(_TABLE)}
    if "pool" in body:
        defaults.setdefault(options.TABLE_DATALAKE_POOL.key, body["pool"])
    for key, value in defaults.items():
        if not key.startswith(SIDE) or key in OF_TABLES:
            raise InvalidConfig(where=where, reason=f"{key} is no default of a lake: table.datalake.freshness is one")
        Config([Setting(key, value, where)])
    enabled = config.get(options.DATALAKE_ENABLED) is not False
    databases = word_list().parse(body.get("databases", ""))
    return LakeConfig(
        name=name,
        format=body["format"],
        enabled=enabled,
        settings=settings,
        defaults=defaults,
        databases=databases,
    )


def _find_default(config: Config, lakes: dict[str, LakeConfig]) -> str | None:
    named = config.get(options.DATALAKE_DEFAULT_LAKE)
    key, there = options.DATALAKE_DEFAULT_LAKE.key, ", ".join(sorted(lakes)) or "none"
    if named is not None and named not in lakes:
        raise InvalidConfig(where=key, reason=f"no lake is called {named!r}; there are: {there}")
    if named is None and len(lakes) > 1 and DEFAULT_LAKE not in lakes:
        raise InvalidConfig(
            where=key, reason=f"there are several lakes ({there}): say which one tables go to by default"
        )
    return named or (DEFAULT_LAKE if DEFAULT_LAKE in lakes else next(iter(lakes), None))
