# SPDX-License-Identifier: Apache-2.0
"""Settings of a tiering job, typed, from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lakeward.config import Config, options
from lakeward.spi import LakeFile
from lakeward.tiering.work.landing import CommitLimits

SERVER_WAIT_S = 300.0
"""How long a split or a commit waits for a server that went away; longer than a lease (2 min), so the lease decides
first.
"""


_SMALL = 8

_WORN_SOON = 0.25
"""Files below the target size by this factor are worn by fewer deleted rows, down to this share of `max_deleted`: each
of them costs readers what ten live rows do (DuckDB 0.5 us, ours 0.2 us), and a small file costs little to rewrite."""


@dataclass(frozen=True, kw_only=True)
class CompactionPolicy:
    """`quiet_sequence`: a bucket without anything younger than this snapshot's number is packed. `by_commit`: files
    that were committed one after the other are neighbours, whether their offsets are known or not."""

    fan_in: int = 8
    target_bytes: int = 128 * 1024 * 1024
    max_deleted: float = 0.2
    quiet_sequence: int = -1
    by_commit: bool = False

    @property
    def growth(self) -> int:
        """The least factor by which a merge multiplies the rows of each of its files: the base of the classes."""
        return max(2, self.fan_in // 2)

    def worn_rows(self, file: LakeFile) -> float:
        """More deleted rows than that, and it is worn."""
        ease = _SMALL * file.size_bytes / self.target_bytes
        return self.max_deleted * min(1.0, max(_WORN_SOON, ease)) * file.record_count


@dataclass(frozen=True, kw_only=True)
class TieringOptions:
    """All times in seconds. `small_round_bytes`: rounds below it share one Spark job. `leave_limit_s`: a server that
    does not take a job's last beat is waited for no longer: it notices by itself, only later."""

    server: str = "http://127.0.0.1:9050"
    hot: str = "embedded"
    hot_options: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    pool: str = "default"
    slots: int = 4
    master: str = "local[*,4]"
    spark: Mapping[str, str] = field(default_factory=dict)
    heartbeat_s: float = 1.0
    target_bytes: int = 128 * 1024 * 1024
    split_attempts: int = 3
    small_round_bytes: int = 16 * 1024 * 1024
    shutdown_grace_s: float = 30.0
    leave_limit_s: float = 5.0
    server_wait_s: float = SERVER_WAIT_S
    min_work_s: float = 1.0
    held_rows: int = 20_000
    commit: CommitLimits = field(default_factory=CommitLimits)
    metrics_port: int | None = None
    otlp_endpoint: str | None = None
    openlineage_url: str | None = None
    cache_dir: Path | None = None
    compaction: CompactionPolicy = field(default_factory=CompactionPolicy)
    compaction_bytes: int = 1 << 30
    quiet_after_s: float = 3600.0

    def with_fluss(self, bootstrap: str, user: str | None = None, deletes: str | None = None) -> TieringOptions:
        """The same job on the tables of an Apache Fluss cluster. Passwords never travel in options. `deletes`: how
        replaced rows are deleted, `positions` or `equality`."""
        given = {"bootstrap": bootstrap, "user": user, "lake.deletes": deletes}
        hot_options = {k: v for k, v in given.items() if v is not None}
        return replace(self, server=bootstrap, hot="fluss", hot_options=hot_options)

    @classmethod
    def from_config(cls, config: Config, spark: Mapping[str, str] | None = None) -> TieringOptions:
        max_age = config.get(options.TIERING_ROUND_MAX_AGE)
        server = config.get(options.CLIENT_SERVER)
        return cls(
            server=server,
            hot_options={"server": server},
            name=config.get(options.TIERING_NAME),
            pool=config.get(options.TIERING_POOL),
            slots=config.get(options.TIERING_SLOTS),
            master=config.get(options.TIERING_MASTER),
            spark=dict(spark or {}),
            heartbeat_s=config.get(options.TIERING_HEARTBEAT_INTERVAL).total_seconds(),
            target_bytes=config.get(options.TIERING_SPLIT_TARGET_BYTES),
            split_attempts=config.get(options.TIERING_SPLIT_MAX_ATTEMPTS),
            small_round_bytes=config.get(options.TIERING_SMALL_ROUND_BYTES),
            min_work_s=config.get(options.TIERING_ROUND_MIN_WORK).total_seconds(),
            shutdown_grace_s=config.get(options.TIERING_SHUTDOWN_GRACE).total_seconds(),
            commit=CommitLimits(
                max_age_s=max_age.total_seconds(),
                server_wait_s=SERVER_WAIT_S,
                foreign_commits=config.get(options.TIERING_COMMIT_MAX_ATTEMPTS),
            ),
            metrics_port=config.get(options.TIERING_METRICS_PORT),
            otlp_endpoint=config.get(options.TIERING_OTLP_ENDPOINT),
            openlineage_url=config.get(options.TIERING_OPENLINEAGE_URL),
            cache_dir=config.get(options.TIERING_CACHE_DIR),
            compaction=CompactionPolicy(
                fan_in=config.get(options.COMPACTION_FAN_IN),
                target_bytes=config.get(options.COMPACTION_TARGET_SIZE),
                max_deleted=config.get(options.COMPACTION_MAX_DELETED),
            ),
            compaction_bytes=config.get(options.COMPACTION_MAX_BYTES),
            quiet_after_s=config.get(options.COMPACTION_QUIET_AFTER).total_seconds(),
        )
