# SPDX-License-Identifier: Apache-2.0
"""How many rows live, counted from files and their deletes: others' commits leave figures that nobody can add up."""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakeward.lake.iceberg.commit.ground import CommitGround
from lakeward.lake.iceberg.meta.summary import summary_of
from lakeward.lake.iceberg.scan.deletefilter import DeleteFilter
from lakeward.lake.iceberg.scan.snapshotfiles import plan_files


def others_changed_rows(ground: CommitGround) -> bool:
    return any(summary_of(s).get("operation") != "replace" for s in ground.reconciled.foreign)


def count_live_rows(table: Table, snapshot: Snapshot | None, partition_keys: tuple[str, ...]) -> int | None:
    """None: keys are deleted in it, and only a scan could tell."""
    files = [] if snapshot is None else plan_files(table.metadata, table.io, snapshot, partition_keys)
    if any(d.content == "equality" for f in files for d in f.deletes):
        return None
    deletes = DeleteFilter(table.io, table.metadata.schema())
    return sum(f.file.record_count - len(deletes.positions(f.describe())) for f in files)
