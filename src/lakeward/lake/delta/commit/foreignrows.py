# SPDX-License-Identifier: Apache-2.0
"""Rows that others put into a PK table since our newest commit: they left no other file, so no changelog has them."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from lakeward.lake.delta.commit.reconcile import DeltaGround
from lakeward.lake.delta.meta.actions import VERSION_KEY, AddFile, DeltaTableState, LogEntry
from lakeward.lake.delta.meta.log import DeltaLog
from lakeward.lake.delta.scan.rows import DeltaFileRows
from lakeward.lake.movedrows import MovedRows, find_inserted
from lakeward.model.bucket import Bucket
from lakeward.model.offsetset import Offsets, OffsetSet
from lakeward.spi.commit import Renewal

Key = tuple[str, str]


def find_foreign_rows(
    log: DeltaLog, ground: DeltaGround, rows: DeltaFileRows, renewal: Renewal | None
) -> tuple[list[LogEntry], dict[Key, OffsetSet], int]:
    """The entries of others that added files, positions per file of the rows that they inserted, and how many of those
    share the address of a row that moved."""
    keys, head = ground.state.keys, ground.state
    since = [v for v in ground.listing.versions if keys and v > int(keys[VERSION_KEY])]
    foreign = [e for e in log.entries(since) if e.adds]
    if not foreign or int(keys[VERSION_KEY]) not in ground.listing.versions:
        return [], {}, 0
    before = log.load(int(keys[VERSION_KEY]), ground.listing)
    added = [f for f in head.files.values() if f.action["path"] not in _paths(before)]
    left = _left(before, head, rows) if added else {}
    hits, copies = {}, 0
    for file in added:
        bucket = file.bucket(head.partition_keys)
        if bucket is not None and renewal is not None and bucket in renewal.offsets:
            continue
        positions = _live_positions(file, rows)
        inserted, copied = find_inserted(rows.offsets(file)[positions], [left[b] for b in [bucket] if b in left])
        copies += copied
        if inserted.any():
            hits[file.key] = OffsetSet(positions[inserted])
    return foreign, hits, copies


def _left(before: DeltaTableState, head: DeltaTableState, rows: DeltaFileRows) -> dict[Bucket | None, MovedRows]:
    """Per bucket the offsets whose rows left the files that were there."""
    parts = defaultdict[Bucket | None, list[Offsets]](list)
    still = {f.action["path"]: f for f in head.files.values()}
    for file in before.files.values():
        now = still.get(file.action["path"])
        if now is not None and now.key == file.key:
            continue
        stays = np.empty(0, np.int64) if now is None else _live_positions(now, rows)
        gone = np.setdiff1d(_live_positions(file, rows), stays)
        parts[file.bucket(before.partition_keys)].append(rows.offsets(file)[gone])
    return {bucket: MovedRows(offsets) for bucket, offsets in parts.items()}


def _live_positions(file: AddFile, rows: DeltaFileRows) -> Offsets:
    every = np.arange(len(rows.offsets(file)), dtype=np.int64)
    return every[~rows.deleted(file).mask(every)]


def _paths(state: DeltaTableState) -> set[str]:
    return {path for path, _ in state.files}
