# SPDX-License-Identifier: Apache-2.0
"""Rows that others put into a PK table since our newest snapshot: they left no other file, so no changelog has them."""

from __future__ import annotations

from collections import defaultdict
from itertools import takewhile

import numpy as np

from lakeward.lake.memory.reconcile import ancestors
from lakeward.lake.memory.rows import data_files, live_mask
from lakeward.lake.memory.table import DataFile, MemoryTable, Snapshot
from lakeward.model.bucket import Bucket
from lakeward.model.offsetset import Offsets, OffsetSet
from lakeward.model.schema import OFFSET
from lakeward.spi.commit import Renewal
from lakeward.spi.snapshotkeys import OFFSETS_KEY


def find_foreign_rows(
    table: MemoryTable, head: Snapshot | None, renewal: Renewal | None = None
) -> tuple[list[Snapshot], dict[str, OffsetSet]]:
    """The snapshots of others, and positions per file of the rows that they inserted."""
    chain, _ = ancestors(table, None if head is None else head.number)
    foreign = list(takewhile(lambda s: OFFSETS_KEY not in s.summary, chain))
    if head is None or not foreign or len(foreign) == len(chain):
        return [], {}
    before, left = chain[len(foreign)], defaultdict[Bucket, list[Offsets]](list)
    for file in data_files(table, before):
        was = live_mask(table, before, file)
        stays = live_mask(table, head, file) if file.path in head.data else np.zeros_like(was)
        left[file.bucket].append(_offsets(file)[was & ~stays])
    hits = {
        f.path: _inserted(table, head, f, left[f.bucket])
        for f in data_files(table, head)
        if f.path not in before.data and not (renewal and f.bucket in renewal.offsets)
    }
    return foreign, {path: positions for path, positions in hits.items() if positions}


def _inserted(table: MemoryTable, head: Snapshot, file: DataFile, left: list[Offsets]) -> OffsetSet:
    moved = np.concatenate([np.empty(0, np.int64), *left])
    return OffsetSet(np.flatnonzero(live_mask(table, head, file) & ~np.isin(_offsets(file), moved)))


def _offsets(file: DataFile) -> Offsets:
    offsets: Offsets = file.rows.column(OFFSET).to_numpy()
    return offsets
