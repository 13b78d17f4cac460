# SPDX-License-Identifier: Apache-2.0
"""Options of the whole store, as the server's configuration gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lakeward.config import Config, options
from lakeward.hot.embedded.log.logoptions import LogOptions
from lakeward.model import BALLAST_BYTES, TableInfo, free_bytes


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """The server's configuration, and what only a program hands in.

    `upkeep` False: upkeep runs only when it is called for. `free_bytes` tells how much space a folder's disk has left.
    """

    config: Config = field(default_factory=Config)
    upkeep: bool = True
    restored: bool = False
    """The data folder came from a copy: ask the remote tier how far the log once was."""

    free_bytes: Callable[[Path], int] = free_bytes
    handles: int | None = None
    """Files that buckets may keep open together; None: half of what the process may."""

    @classmethod
    def of(cls, config: Config) -> StoreOptions:
        return cls(config=config, restored=config.get(options.SERVER_RESTORED))

    @classmethod
    def with_settings(cls, settings: Mapping[str, object], *, upkeep: bool = False) -> StoreOptions:
        """For tests and small programs: option keys and values."""
        return cls(config=Config().with_arguments(settings), upkeep=upkeep)

    def table(self, table: TableInfo) -> LogOptions:
        d = table.descriptor
        return LogOptions.of(self.config, str(table.path), d.properties, d)

    @property
    def remote_uri(self) -> str | None:
        """None: a folder inside the data folder."""
        return self.config.get(options.REMOTE_DATA_DIR)

    @property
    def remote_log(self) -> bool:
        return bool(self.config.get(options.REMOTE_LOG_TASK_INTERVAL_DURATION))

    @property
    def upload_segments(self) -> int:
        return self.config.get(options.REMOTE_LOG_TASK_MAX_UPLOAD_SEGMENTS)

    @property
    def reserve_bytes(self) -> int:
        return self.config.get(options.SERVER_DISK_RESERVE)

    @property
    def ballast_bytes(self) -> int:
        """A small part of the reserve that other programs cannot take."""
        return min(BALLAST_BYTES, self.reserve_bytes // 16)

    @property
    def writer_ttl_ms(self) -> int:
        return int(self.config.get(options.SERVER_WRITER_ID_EXPIRATION_TIME).total_seconds() * 1000)

    @property
    def max_partitions(self) -> int:
        return self.config.get(options.MAX_PARTITION_NUM)
