# SPDX-License-Identifier: Apache-2.0
"""Rows that others put into a PK table since our newest snapshot: they left no other file, so no changelog has them."""

from __future__ import annotations

from collections import defaultdict
from itertools import takewhile

import numpy as np

from lakeward.lake.memory.reconcile import ancestors
from lakeward.lake.memory.rows import data_files, live_mask
from lakeward.lake.memory.table import DataFile, MemoryTable, Snapshot
from lakeward.lake.movedrows import MovedRows, find_inserted
from lakeward.model.bucket import Bucket
from lakeward.model.offsetset import Offsets, OffsetSet
from lakeward.model.schema import OFFSET
from lakeward.spi.commit import Renewal
from lakeward.spi.snapshotkeys import OFFSETS_KEY


def find_foreign_rows(
    table: MemoryTable, head: Snapshot | None, renewal: Renewal | None = None
) -> tuple[list[Snapshot], dict[str, OffsetSet], int]:
    """The snapshots of others, positions per file of the rows that they inserted, and how many of those share the
    address of a row that moved."""
    chain, _ = ancestors(table, None if head is None else head.number)
    foreign = list(takewhile(lambda s: OFFSETS_KEY not in s.summary, chain))
    if head is None or not foreign or len(foreign) == len(chain):
        return [], {}, 0
    before, left = chain[len(foreign)], defaultdict[Bucket, list[Offsets]](list)
    for file in data_files(table, before):
        was = live_mask(table, before, file)
        stays = live_mask(table, head, file) if file.path in head.data else np.zeros_like(was)
        left[file.bucket].append(_offsets(file)[was & ~stays])
    moved = {bucket: MovedRows(offsets) for bucket, offsets in left.items()}
    hits, copies = {}, 0
    for file in data_files(table, head):
        if file.path not in before.data and not (renewal and file.bucket in renewal.offsets):
            alive = np.flatnonzero(live_mask(table, head, file))
            inserted, copied = find_inserted(_offsets(file)[alive], [moved[b] for b in [file.bucket] if b in moved])
            copies += copied
            if inserted.any():
                hits[file.path] = OffsetSet(alive[inserted])
    return foreign, hits, copies


def _offsets(file: DataFile) -> Offsets:
    offsets: Offsets = file.rows.column(OFFSET).to_numpy()
    return offsets
