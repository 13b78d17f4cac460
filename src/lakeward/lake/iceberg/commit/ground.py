# SPDX-License-Identifier: Apache-2.0
"""What one commit is built on: a table as loaded once, reconciled."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakeward.lake.iceberg.meta.ancestry import Reconciled
from lakeward.model.round import LakeBase


@dataclass(frozen=True)
class CommitGround:
    table: Table
    reconciled: Reconciled

    @property
    def head(self) -> Snapshot | None:
        return self.table.metadata.current_snapshot()

    @property
    def base(self) -> LakeBase:
        """With this in it, so that what is built on the base does not load the table again."""
        return replace(self.reconciled.base, loaded=self)
