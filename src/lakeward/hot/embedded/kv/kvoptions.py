# SPDX-License-Identifier: Apache-2.0
"""KV settings from the server's configuration and a table's properties."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from lakeward.config import Config
from lakeward.config import options as option
from lakeward.hot.embedded.kv.snapshot import DEFAULT_LEASE_S
from lakeward.model import TableDescriptor


@dataclass(frozen=True, kw_only=True)
class KvOptions:
    snapshot_interval_s: float = 600.0
    """Also bounds how far back retention must keep the log."""

    snapshots_retained: int = 2
    """The newest are kept, and all that are leased."""

    flush_bytes: int = 32 << 20
    """Bytes of values after which memtables go to disk: what a start after a crash has to roll forward, a second or
    less.
    """

    lease_s: float = DEFAULT_LEASE_S
    config: Config = field(default_factory=Config)

    @classmethod
    def of(cls, config: Config) -> KvOptions:
        return cls(
            snapshot_interval_s=config.get(option.KV_SNAPSHOT_INTERVAL) / timedelta(seconds=1),
            snapshots_retained=config.get(option.KV_SNAPSHOT_NUM_RETAINED),
            config=config,
        )

    def has_before_images(self, table: TableDescriptor) -> bool:
        """Whether the table's changelog has -U records."""
        image = self.config.for_table(table.properties).get(option.TABLE_CHANGELOG_IMAGE)
        return image is not option.ChangelogImage.WAL
