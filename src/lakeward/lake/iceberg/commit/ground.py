# SPDX-License-Identifier: Apache-2.0
"""A table as loaded once; a commit is built on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakeward.lake.iceberg.meta.summary import Reconciled, summary_of
from lakeward.lake.iceberg.scan.deletefilter import DeleteFilter
from lakeward.lake.iceberg.scan.snapshotfiles import plan_files
from lakeward.model import LakeBase, SnapshotId


class GroundHistory(Protocol):
    """History that the table's log derives from a ground when it is needed."""

    def reconcile(self, table: Table) -> Reconciled:
        """Raises `LakeTampered`, `LakeUnavailable`."""

    def base_of(self, ground: IcebergGround) -> LakeBase:
        """Loads the base. Raises as `LakeReader.load_base`."""


@dataclass(frozen=True)
class IcebergGround:
    table: Table
    history: GroundHistory = field(repr=False, compare=False)

    @property
    def head(self) -> Snapshot | None:
        return self.table.metadata.current_snapshot()

    @property
    def head_id(self) -> SnapshotId | None:
        return None if self.head is None else SnapshotId(str(self.head.snapshot_id))

    @cached_property
    def reconciled(self) -> Reconciled:
        return self.history.reconcile(self.table)

    @cached_property
    def base(self) -> LakeBase:
        """Returns the base with this ground, so that a commit on it does not load the table again."""
        return self.history.base_of(self)

    @property
    def others_changed_rows(self) -> bool:
        return any(summary_of(s).get("operation") != "replace" for s in self.reconciled.foreign)


def count_live_rows(table: Table, snapshot: Snapshot | None, partition_keys: tuple[str, ...]) -> int | None:
    """Counts live rows; None if keys are deleted, as only a scan could tell."""
    files = [] if snapshot is None else plan_files(table.metadata, table.io, snapshot, partition_keys)
    if any(d.content == "equality" for f in files for d in f.deletes):
        return None
    deletes = DeleteFilter(table.io, table.metadata.schema())
    return sum(f.file.record_count - len(deletes.positions(f.describe())) for f in files)
