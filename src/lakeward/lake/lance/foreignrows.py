# SPDX-License-Identifier: Apache-2.0
"""Rows that others put into a PK table since our newest commit: they left no other fragment; no changelog has them."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from lakeward.lake.lance.reconcile import LanceGround
from lakeward.lake.lance.rows import LanceRows
from lakeward.lake.lance.table import LanceTable
from lakeward.lake.lance.versions import LanceVersion
from lakeward.lake.movedrows import MovedRows, find_inserted
from lakeward.model.bucket import Bucket
from lakeward.model.offsetset import Offsets, OffsetSet
from lakeward.spi.commit import Renewal


def find_foreign_rows(
    table: LanceTable, ground: LanceGround, rows: LanceRows, before: LanceRows | None, renewal: Renewal | None
) -> tuple[list[LanceVersion], dict[int, OffsetSet], int]:
    """The versions of others since, positions per fragment of the rows that they inserted, and how many of those share
    the address of a row that moved. `before`: rows of our newest commit."""
    since = [table.version(v) for v in ground.versions if ground.own is not None and v > ground.own.version]
    foreign = [v for v in since if v.is_snapshot]
    if not foreign or before is None:
        return [], {}, 0
    there = {f.files[0].path for f in before.fragments}
    added = [f for f in rows.fragments if f.files[0].path not in there]
    left = _left(before, rows) if added else {}
    hits, copies = dict[int, OffsetSet](), 0
    for fragment in added:
        live, offsets = rows.live_positions(fragment), rows.offsets(fragment)
        for bucket, places in rows.places(fragment):
            if renewal is not None and bucket in renewal.offsets:
                continue
            positions = np.intersect1d(places, live)
            inserted, copied = find_inserted(offsets[positions], [left[bucket]] if bucket in left else [])
            copies += copied
            if inserted.any():
                hits[fragment.id] = hits.get(fragment.id, OffsetSet()).union(OffsetSet(positions[inserted]))
    return foreign, hits, copies


def _left(before: LanceRows, now: LanceRows) -> dict[Bucket, MovedRows]:
    """Per bucket the offsets whose rows left the fragments that were there."""
    parts = defaultdict[Bucket, list[Offsets]](list)
    still = {f.files[0].path: f for f in now.fragments}
    for fragment in before.fragments:
        same = still.get(fragment.files[0].path)
        stays = np.empty(0, np.int64) if same is None else now.live_positions(same)
        gone = np.setdiff1d(before.live_positions(fragment), stays)
        if not len(gone):
            continue
        offsets = before.offsets(fragment)
        for bucket, places in before.places(fragment):
            parts[bucket].append(offsets[np.intersect1d(places, gone)])
    return {bucket: MovedRows(offsets) for bucket, offsets in parts.items()}
