# SPDX-License-Identifier: Apache-2.0
"""Settings of logs and partitions from the configuration and a table's properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from lakeward.config import Config, options
from lakeward.config.options import Fsync, TimeUnit
from lakeward.config.tables import check_properties
from lakeward.hot.embedded.log.index import INTERVAL_BYTES
from lakeward.hot.logbatch.codec import LogCompression
from lakeward.model import TableDescriptor

_DAY_MS = 86_400_000


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """`ttl_ms` 0: rows are kept forever. `auto_partition` None: partitions are created and dropped only by calls and
    writes."""

    fsync: Fsync = Fsync.ALWAYS
    compression: LogCompression = LogCompression.NONE
    compression_level: int | None = None
    segment_bytes: int = 64 << 20
    index_bytes: int = INTERVAL_BYTES
    ttl_ms: int = 7 * _DAY_MS
    local_ttl_ms: int = 7 * _DAY_MS
    local_segments: int = 2
    auto_partition: AutoPartition | None = None

    @classmethod
    def of(
        cls, config: Config, table: str, properties: Mapping[str, str], descriptor: TableDescriptor | None = None
    ) -> LogOptions:
        """Raises `InvalidOptionValue`, `UnknownOption`, `InvalidTable`."""
        c = check_properties(table, properties, descriptor, config)
        kind = c.get(options.TABLE_LOG_ARROW_COMPRESSION_TYPE)
        level = c.get(options.TABLE_LOG_ARROW_COMPRESSION_ZSTD_LEVEL)
        ttl = c.get(options.TABLE_LOG_TTL)
        return cls(
            fsync=c.get(options.TABLE_LOG_FSYNC),
            compression=LogCompression(str(kind).removesuffix("_frame")),
            compression_level=level if kind is options.Compression.ZSTD else None,
            segment_bytes=c.get(options.LOG_SEGMENT_FILE_SIZE),
            index_bytes=c.get(options.LOG_INDEX_INTERVAL_SIZE),
            ttl_ms=_ms(ttl),
            local_ttl_ms=_ms(c.get(options.TABLE_LOG_LOCAL_TTL) or ttl),
            local_segments=c.get(options.TABLE_LOG_TIERED_LOCAL_SEGMENTS),
            auto_partition=None if descriptor is None else _auto_partition(c, descriptor),
        )


@dataclass(frozen=True, kw_only=True)
class AutoPartition:
    """`key` is the place of the time among the partition keys. `by_time`: it is the time of a column (`day(ts)`), not
    a column with a text of it. `retention` 0 or less: nothing expires."""

    key: int
    unit: TimeUnit
    time_zone: str = "UTC"
    precreate: int = 2
    retention: int = 7
    by_time: bool = False


def _auto_partition(config: Config, descriptor: TableDescriptor) -> AutoPartition | None:
    names = descriptor.partition_keys
    if not names or not config.get(options.TABLE_AUTO_PARTITION_ENABLED):
        return None
    at = names.index(config.get(options.TABLE_AUTO_PARTITION_KEY) or names[0])
    unit = descriptor.partitioning[at].unit
    return AutoPartition(
        key=at,
        unit=config.get(options.TABLE_AUTO_PARTITION_TIME_UNIT) if unit is None else TimeUnit(unit),
        by_time=unit is not None,
        time_zone=config.get(options.TABLE_AUTO_PARTITION_TIME_ZONE),
        precreate=config.get(options.TABLE_AUTO_PARTITION_NUM_PRECREATE),
        retention=config.get(options.TABLE_AUTO_PARTITION_NUM_RETENTION),
    )


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
