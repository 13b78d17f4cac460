# SPDX-License-Identifier: Apache-2.0
"""Options of keys and partitions in the hot store."""

from __future__ import annotations

from lakeward.config.kinds import boolean, choice, duration, integer, size, text
from lakeward.config.options.choices import ChangelogImage, TimeUnit
from lakeward.config.options.declare import MS, SERVER, TABLE, option, optional

KV_SNAPSHOT_INTERVAL = option(
    "kv.snapshot.interval", duration(minimum=MS), "10 min", "How often a bucket's keys are checkpointed.", SERVER
)
KV_SNAPSHOT_NUM_RETAINED = option(
    "kv.snapshot.num-retained", integer(minimum=1), "2", "How many checkpoints of a bucket are kept.", SERVER
)
KV_BLOCK_CACHE_SIZE = option(
    "kv.block-cache.size", size(minimum=1 << 20), "64 mb", "RocksDB block cache, shared by all buckets.", SERVER
)
TABLE_CHANGELOG_IMAGE = option(
    "table.changelog.image",
    choice(ChangelogImage),
    "full",
    "full writes -U and +U for an update, wal only +U. Both carry __prev_offset here.",
    TABLE,
    alterable=False,
)
TABLE_AUTO_PARTITION_ENABLED = option(
    "table.auto-partition.enabled", boolean(), "false", "Make and expire partitions by time.", TABLE
)
TABLE_AUTO_PARTITION_KEY = optional(
    "table.auto-partition.key",
    text(),
    "the only partition key",
    "Which partition key holds the time.",
    TABLE,
    alterable=False,
)
TABLE_AUTO_PARTITION_TIME_UNIT = option(
    "table.auto-partition.time-unit",
    choice(TimeUnit),
    "day",
    "The time that one partition covers.",
    TABLE,
    alterable=False,
)
TABLE_AUTO_PARTITION_TIME_ZONE = option(
    "table.auto-partition.time-zone",
    text(),
    "UTC",
    "Zone in which a partition's time begins.",
    TABLE,
    alterable=False,
    fluss="the server's zone",
)
TABLE_AUTO_PARTITION_NUM_PRECREATE = option(
    "table.auto-partition.num-precreate", integer(minimum=0), "2", "How many partitions are made ahead of time.", TABLE
)
TABLE_AUTO_PARTITION_NUM_RETENTION = option(
    "table.auto-partition.num-retention",
    integer(),
    "7",
    "How many past partitions the hot store keeps; 0 or less keeps all. They stay in the lake.",
    TABLE,
    fluss="goes on time alone; here a partition also waits until the lake has all of it",
)
AUTO_PARTITION_CHECK_INTERVAL = option(
    "auto-partition.check.interval",
    duration(minimum=MS),
    "10 min",
    "How often partitions are made and expired.",
    SERVER,
)
