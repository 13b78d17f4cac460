# SPDX-License-Identifier: Apache-2.0
"""Settings of the coordinator, and the table properties that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from lakeward.config import Config
from lakeward.config import options as keys
from lakeward.config.lake import LakeConfig, load_lakes
from lakeward.config.tables import DEFAULT_LAKE, side_properties, sides_named
from lakeward.model import Content, SideName, TableInfo
from lakeward.protocol.tables import LakeAddress

DEFAULT_POOL = keys.TABLE_DATALAKE_POOL.default


@dataclass(frozen=True, kw_only=True)
class CoordinatorOptions:
    """Times in seconds unless the name says otherwise. Lease and sweep defaults are Fluss's."""

    lease_s: float = 120.0
    sweep_s: float = 15.0
    beat_s: float = 5.0
    """How often an idle job beats; a table that falls due sooner shortens it."""

    tick_s: float = 0.2
    """How often backlogs are read and due tables are queued."""

    jobs_expected: tuple[str, ...] = ()
    jobs_kept_s: float = 86_400.0
    """A job that has been silent for so long is forgotten."""

    backoff_s: float = 1.0
    backoff_limit_s: float = 300.0
    backoff_jitter: float = 0.2
    quarantine_after: int = 10
    seed: int = 0
    """Seed of the jitter, so that a simulation is reproducible."""

    margin_share: float = 0.1
    """Fraction of the expected duration by which rounds of one table differ."""

    margin_s: float = 0.5
    upkeep_s: float = 60.0
    """How often lakes are read, read leases swept and snapshots expired."""

    orphan_s: float = 600.0
    orphan_grace_s: float = 600.0
    sweep_all_s: float = 86_400.0
    """How often a table's whole folder is listed for files that no intent names."""

    round_max_age_s: float = 2 * 86_400.0
    confirm_s: float = 60.0
    """How often, at most, a table's reported offsets are confirmed in the lake itself before retention may use them."""

    ledger_kept_s: float = 7 * 86_400.0
    """After that the entries of a bucket are merged; above `tiering.round.max-age`, so a late commit is still
    recognised.
    """

    compaction_slots: float = 0.5
    """The share of a pool's slots that compactions may take; one at least."""

    compaction_bytes_per_hour: int | None = None
    compaction_limit_s: float = 300.0
    urgent_files: int = 1_000
    """A side with more files than that per bucket is compacted as soon as a slot is free."""

    quiet_after_s: float = 3_600.0
    """How long after its last look a side that got rows since is looked at whatever it got: to be packed."""

    rounds_kept: int = 10_000
    read_lease_limit_s: float = 3_600.0
    tier_now_limit_s: float = 300.0
    lake_format: str | None = None
    """The format of tables that name none. Set with `lake_enabled` false it only chooses bucket functions."""

    lake_enabled: bool = True
    lakes: Mapping[str, LakeConfig] = field(default_factory=dict)
    """Lakes by name, that of tables which name none first; empty: the one of `lake_format`."""

    addresses: Mapping[str, LakeAddress] = field(default_factory=dict)
    """Name -> what readers and jobs need to reach that lake, without secrets."""

    flight_uri: str = ""
    restored: bool = False
    lakes_missing: Mapping[str, str] = field(default_factory=dict)
    """Lakes that a restored folder had and the configuration has not -> the lines that lakeward.toml needs."""

    config: Config = field(default_factory=Config)
    """The server's: its `table.*` settings are the defaults of tables."""

    @classmethod
    def from_config(cls, config: Config, **more: object) -> CoordinatorOptions:
        """Raises `InvalidConfig` for a half-written lake."""
        lakes = load_lakes(config)
        lake = next(iter(lakes.values()), None)
        values: dict[str, object] = {
            "lease_s": _s(config.get(keys.COORDINATOR_LEASE_DURATION)),
            "sweep_s": _s(config.get(keys.COORDINATOR_SWEEP_INTERVAL)),
            "beat_s": _s(config.get(keys.COORDINATOR_HEARTBEAT_INTERVAL)),
            "tick_s": _s(config.get(keys.COORDINATOR_TICK)),
            "jobs_expected": config.get(keys.JOBS_EXPECTED),
            "backoff_s": _s(config.get(keys.COORDINATOR_BACKOFF_INITIAL)),
            "backoff_limit_s": _s(config.get(keys.COORDINATOR_BACKOFF_MAX)),
            "backoff_jitter": config.get(keys.COORDINATOR_BACKOFF_JITTER),
            "quarantine_after": config.get(keys.COORDINATOR_QUARANTINE_FAILURES),
            "margin_s": _s(config.get(keys.COORDINATOR_SCHEDULE_MARGIN)),
            "upkeep_s": _s(config.get(keys.COORDINATOR_MAINTENANCE_INTERVAL)),
            "orphan_s": _s(config.get(keys.COORDINATOR_ORPHAN_INTERVAL)),
            "orphan_grace_s": _s(config.get(keys.COORDINATOR_ORPHAN_GRACE)),
            "compaction_slots": config.get(keys.COMPACTION_MAX_SLOTS),
            "compaction_bytes_per_hour": config.get(keys.COMPACTION_MAX_BYTES_PER_HOUR),
            "compaction_limit_s": _s(config.get(keys.COMPACTION_MAX_DURATION)),
            "urgent_files": config.get(keys.COMPACTION_URGENT_FILES),
            "quiet_after_s": _s(config.get(keys.COMPACTION_QUIET_AFTER)),
            "rounds_kept": config.get(keys.COORDINATOR_ROUNDS_KEPT),
            "read_lease_limit_s": _s(config.get(keys.COORDINATOR_READ_LEASE_MAX)),
            "tier_now_limit_s": _s(config.get(keys.COORDINATOR_TIER_NOW_LIMIT)),
            "restored": config.get(keys.SERVER_RESTORED),
            "round_max_age_s": _s(config.get(keys.TIERING_ROUND_MAX_AGE)),
            "lake_format": None if lake is None else lake.format,
            "lake_enabled": lake is not None and lake.enabled,
            "lakes": lakes,
            "config": config,
        }
        return cls(**{**values, **more})  # type: ignore[arg-type]

    @property
    def configured(self) -> Mapping[str, LakeConfig]:
        if self.lakes or self.lake_format is None:
            return self.lakes
        return {DEFAULT_LAKE: LakeConfig(format=self.lake_format, enabled=self.lake_enabled, settings={})}


@dataclass(frozen=True, kw_only=True)
class SideOptions:
    """A side's tiering options, parsed. `lake` is what its lake is opened by: a lake's name, or the format of a table
    that keeps another one than the lake of `datalake.format` has now."""

    enabled: bool
    format: str | None
    lake: str = DEFAULT_LAKE
    freshness_ms: int = 180_000
    pool: str = DEFAULT_POOL
    priority: int = 0
    limit_ms: int | None = None
    maintained: bool = True
    compacted: bool = True
    expired: bool = True
    retention_ms: int | None = None
    """How long rows of a changelog stay; None: for ever."""

    @property
    def round_limit_ms(self) -> int:
        """The longest a round may take before it is force-finished: half the freshness unless the table says
        otherwise.
        """
        return self.limit_ms if self.limit_ms is not None else max(1, self.freshness_ms // 2)


Sides = dict[SideName, SideOptions]


def read_sides(properties: Mapping[str, str], options: CoordinatorOptions) -> Sides:
    """The sides that a table's own properties name, in their order; a table that names none has the one of
    `datalake.format`. Raises `InvalidOptionValue` naming the property."""
    return {side: _read_side(side, properties, options) for side in sides_named(properties)}


def _read_side(side: SideName, properties: Mapping[str, str], options: CoordinatorOptions) -> SideOptions:
    """A property of one side counts before the table's, that before the lake's default, that before the server's."""
    name, lake = side.lake, options.configured.get(side.lake)
    config = options.config.for_table(
        {**(lake.defaults if lake is not None else {}), **properties, **side_properties(properties, side)}
    )
    format_name = lake.format if lake is not None else None
    if name == DEFAULT_LAKE:
        format_name = config.get(keys.TABLE_DATALAKE_FORMAT) or format_name
    is_own = lake is not None and lake.format == format_name
    enabled, is_on = config.get(keys.TABLE_DATALAKE_ENABLED), options.lake_enabled if lake is None else lake.enabled
    is_there = format_name is not None and (lake is not None or not options.configured)
    maintained = config.get(keys.TABLE_DATALAKE_AUTO_MAINTENANCE)
    limit = config.get(keys.TABLE_DATALAKE_MAX_ROUND_DURATION)
    retention = config.get(keys.TABLE_DATALAKE_CHANGELOG_RETENTION) if side.content is Content.CHANGELOG else None
    return SideOptions(
        enabled=is_there and (is_on if enabled is None else enabled),
        format=format_name,
        lake=name if is_own or format_name is None else format_name,
        freshness_ms=_ms(config.get(keys.TABLE_DATALAKE_FRESHNESS)),
        pool=config.get(keys.TABLE_DATALAKE_POOL),
        priority=config.get(keys.TABLE_DATALAKE_PRIORITY),
        limit_ms=None if limit is None else _ms(limit),
        maintained=maintained,
        compacted=maintained and config.get(keys.TABLE_DATALAKE_AUTO_COMPACTION),
        expired=maintained and config.get(keys.TABLE_DATALAKE_AUTO_EXPIRE_SNAPSHOT),
        retention_ms=None if retention is None else _ms(retention),
    )


def sides_of(table: TableInfo, options: CoordinatorOptions) -> Sides:
    return read_sides(table.descriptor.properties, options)


def _s(value: timedelta) -> float:
    return value.total_seconds()


def _ms(value: timedelta) -> int:
    return max(1, round(value.total_seconds() * 1_000))
