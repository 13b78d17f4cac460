# SPDX-License-Identifier: Apache-2.0
"""What the server's configuration says of its lake: which format, with which settings."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.config import options
from lakeward.config.config import Config
from lakeward.errors import InvalidConfig


@dataclass(frozen=True, kw_only=True)
class LakeConfig:
    """`enabled` false with a format: tables take that format's bucket function at birth, and nothing is tiered."""

    format: str
    enabled: bool
    settings: dict[str, str]


def load_lake_config(config: Config) -> LakeConfig | None:
    """None: this server has no lake. Raises `InvalidConfig` for a half-written one."""
    name, enabled = config.get(options.DATALAKE_FORMAT), config.get(options.DATALAKE_ENABLED)
    given = config.below("datalake.")
    if name is None:
        if enabled:
            raise InvalidConfig(
                where=config.where(options.DATALAKE_ENABLED),
                reason="datalake.enabled is true and datalake.format is not set",
            )
        if given:
            raise InvalidConfig(
                where="datalake", reason=f"datalake.{next(iter(given))} is set and datalake.format is not"
            )
        return None
    for key in given:
        if not key.startswith(f"{name}."):
            raise InvalidConfig(where="datalake", reason=f"datalake.{key} is no setting of datalake.format = {name}")
    return LakeConfig(format=name, enabled=enabled is not False, settings=config.below(f"datalake.{name}."))
