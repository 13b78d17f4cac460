# SPDX-License-Identifier: Apache-2.0
"""Rows that others put into a PK table since our newest snapshot. A rewrite of theirs moves rows; an insert adds some
that no changelog has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakeward.lake.core.foreign import MovedRows, find_inserted
from lakeward.lake.iceberg.commit.ground import IcebergGround
from lakeward.lake.iceberg.commit.resolve import Hit
from lakeward.lake.iceberg.datafile.offsetcache import OffsetLoader
from lakeward.lake.iceberg.meta.summary import summary_of
from lakeward.lake.iceberg.meta.types import is_clean
from lakeward.lake.iceberg.scan.deletefilter import DeleteFilter
from lakeward.lake.iceberg.scan.snapshotfiles import PlannedFile, plan_files
from lakeward.model import OFFSET, Bucket, Offsets
from lakeward.spi import Renewal

Moved = Mapping[Bucket | None, MovedRows]


def find_foreign_rows(
    ground: IcebergGround, partition_keys: tuple[str, ...], renewal: Renewal | None = None
) -> tuple[list[Hit], int]:
    """Rows of files that others added whose (bucket, offset) left no other file meanwhile, or more of them than left;
    and how many share the address of a row of ours that moved. Reads those files' offsets, and those of the files that
    rows left; nothing where nobody else added a file. Files that the round compared row by row are settled by that.
    Rows of a clean table do not say where they come from: those of files that others appended count."""
    reconciled = ground.reconciled
    if is_clean(ground.table.metadata.schema()):
        return _appended(ground, partition_keys), 0
    if reconciled.newest is None or ground.head is None or not any(map(may_insert, reconciled.foreign)):
        return [], 0
    before, now = (_plan(ground.table, at, partition_keys) for at in (reconciled.newest, ground.head))
    rows = _Rows(ground.table)
    left: dict[Bucket | None, list[Offsets]] = defaultdict(list)
    for path, planned in before.items():
        left[planned.bucket].append(rows.left(planned, now.get(path)))
    settled = _settled(ground, partition_keys, now, renewal)
    added = [planned for path, planned in now.items() if path not in before and path not in settled]
    moved = {bucket: MovedRows(offsets) for bucket, offsets in left.items()}
    found = [(p, *rows.inserted(p, moved)) for p in added]
    hits = [Hit(p.file, p.indexed.spec_id, positions) for p, positions, _ in found if len(positions)]
    return hits, sum(copies for _, _, copies in found)


def _appended(ground: IcebergGround, partition_keys: tuple[str, ...]) -> list[Hit]:
    appends = {s.snapshot_id for s in ground.reconciled.foreign if summary_of(s).get("operation") == "append"}
    if not appends or ground.head is None:
        return []
    deletes = DeleteFilter(ground.table.io, ground.table.metadata.schema())
    planned = _plan(ground.table, ground.head, partition_keys).values()
    added = [p for p in planned if p.indexed.entry.snapshot_id in appends]
    return [Hit(p.file, p.indexed.spec_id, find_alive(p, deletes)) for p in added]


def _settled(
    ground: IcebergGround, partition_keys: tuple[str, ...], now: Mapping[str, PlannedFile], renewal: Renewal | None
) -> set[str]:
    compared = None if renewal is None else ground.table.metadata.snapshot_by_id(int(renewal.head))
    if renewal is None or compared is None:
        return set()
    there = now if compared == ground.head else _plan(ground.table, compared, partition_keys)
    return {path for path, planned in there.items() if planned.bucket in renewal.offsets}


def may_insert(snapshot: Snapshot) -> bool:
    """A `replace` changes no rows, by Iceberg's own rule."""
    summary = summary_of(snapshot)
    return summary.get("operation") != "replace" and summary.get("added-data-files") != "0"


def _plan(table: Table, snapshot: Snapshot, partition_keys: tuple[str, ...]) -> dict[str, PlannedFile]:
    return {p.file.file_path: p for p in plan_files(table.metadata, table.io, snapshot, partition_keys)}


class _Rows:
    def __init__(self, table: Table) -> None:
        self._loader = OffsetLoader(table.io, table.metadata.schema().find_field(OFFSET).field_id)
        self._deletes = DeleteFilter(table.io, table.metadata.schema())

    def left(self, before: PlannedFile, now: PlannedFile | None) -> Offsets:
        """Offsets of rows that lived in a file and live there no more."""
        if now is not None and {d.file.file_path for d in now.deletes} == {d.file.file_path for d in before.deletes}:
            return np.empty(0, np.int64)
        offsets = self._loader.load(before.file)
        alive = find_alive(before, self._deletes)
        return offsets[alive if now is None else np.setdiff1d(alive, find_alive(now, self._deletes))]

    def inserted(self, added: PlannedFile, moved: Moved) -> tuple[Offsets, int]:
        """Positions of its rows that came from nowhere. A file without a bucket may hold rows of all of them."""
        buckets = list(moved) if added.bucket is None else [added.bucket, None]
        alive, offsets = find_alive(added, self._deletes), self._loader.load(added.file)
        inserted, copies = find_inserted(offsets[alive], [moved[b] for b in buckets if b in moved])
        return alive[inserted], copies


def find_alive(planned: PlannedFile, deletes: DeleteFilter) -> Offsets:
    everything = np.arange(planned.file.record_count, dtype=np.int64)
    return np.setdiff1d(everything, deletes.positions(planned.describe()), assume_unique=True)
