# SPDX-License-Identifier: Apache-2.0
"""How many rows live, counted from files and their deletes: others' commits leave figures that nobody can add up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakeward.lake.iceberg.commit.ground import CommitGround
from lakeward.lake.iceberg.commit.resolve import Hit
from lakeward.lake.iceberg.meta.manifests import load_manifests
from lakeward.lake.iceberg.meta.summary import summary_of
from lakeward.lake.iceberg.scan.deletefilter import DeleteFilter
from lakeward.lake.iceberg.scan.snapshotfiles import LiveDeletes, plan_files


def others_changed_rows(ground: CommitGround) -> bool:
    return any(summary_of(s).get("operation") != "replace" for s in ground.reconciled.foreign)


def count_live_rows(table: Table, snapshot: Snapshot | None, partition_keys: tuple[str, ...]) -> int | None:
    """None: keys are deleted in it, and only a scan could tell."""
    files = [] if snapshot is None else plan_files(table.metadata, table.io, snapshot, partition_keys)
    if any(d.content == "equality" for f in files for d in f.deletes):
        return None
    deletes = DeleteFilter(table.io, table.metadata.schema())
    return sum(f.file.record_count - len(deletes.positions(f.describe())) for f in files)


def count_rows_gone(ground: CommitGround, hits: Sequence[Hit]) -> int:
    """Live rows among the hits: others may have deleted some by position, where a round still finds them. Reads delete
    files only where others removed rows."""
    total = sum(len(h.positions) for h in hits)
    if not hits or ground.reconciled.foreign_removed() == 0:
        return total
    metadata, io = ground.table.metadata, ground.table.io
    live, deletes = LiveDeletes.load(metadata, io, load_manifests(io, ground.head)), DeleteFilter(io, metadata.schema())
    for hit in hits:
        gone = [deletes.positions_in(d, hit.file.file_path) for d in live.by_position(hit.file, hit.spec_id)]
        total -= len(np.intersect1d(hit.positions, np.concatenate([np.empty(0, np.int64), *gone])))
    return total
