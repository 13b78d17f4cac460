# SPDX-License-Identifier: Apache-2.0
"""One row's way: its changes in the log, the rounds that brought them to the lake, and where the lake had it since."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import LakewardError
from lakeward.model import (
    CHANGE_TYPE,
    OFFSET,
    TIMESTAMP,
    Bucket,
    ChangeType,
    LedgerEntry,
    OffsetRange,
    Offsets,
    RoundId,
    SnapshotId,
    TableInfo,
)
from lakeward.spi import HotPlugin, LakeFile, LakeReader, LakeSnapshot, load_lake

MOST_CHANGES, MOST_SNAPSHOTS = 20, 500
_LIVE = (ChangeType.APPEND, ChangeType.INSERT, ChangeType.UPDATE_AFTER)


@dataclass(frozen=True, kw_only=True)
class RowPlace:
    """Where the lake has a row from a snapshot on. `position` None: the format does not say it. `rewrite_id`: the
    compaction that moved it there; None for the round that wrote it."""

    file: str
    position: int | None
    snapshot_id: SnapshotId
    since_ms: int
    job: str
    rewrite_id: RoundId | None = None


@dataclass(frozen=True, kw_only=True)
class RowRemoval:
    """The first snapshot without the row. `file`: the deletes that took it out; None where its file was rewritten."""

    snapshot_id: SnapshotId
    at_ms: int
    job: str
    file: str | None = None


@dataclass(frozen=True, kw_only=True)
class TracedChange:
    """`entry`: the ledger's range with it; None while it waits for its round."""

    offset: int
    kind: ChangeType
    at_ms: int
    entry: LedgerEntry | None = None
    places: tuple[RowPlace, ...] = ()
    removal: RowRemoval | None = None


@dataclass(frozen=True, kw_only=True)
class RowTrace:
    """Newest change first. `log_start`: the oldest offset that the log has; older changes are not known. `notes`: what
    could not be looked at."""

    bucket: Bucket
    log_start: int
    changes: tuple[TracedChange, ...]
    notes: tuple[str, ...] = ()


Match = Callable[[pa.RecordBatch], pa.Array]


def trace_rows(
    plugin: HotPlugin,
    table: TableInfo,
    bucket: Bucket,
    match: Match,
    columns: Sequence[str],
    only: OffsetRange | None = None,
) -> RowTrace:
    """Traces the rows that `match` marks in batches of `columns` and the log's system columns. The log is read once, in
    constant memory."""
    store = plugin.store()
    bounds = store.freeze(table)[bucket]
    newest: deque[TracedChange] = deque(maxlen=MOST_CHANGES)
    first, end = bounds.start, bounds.end
    if only is not None:
        first, end = max(first, only.start), min(end, only.stop)
    for batch in store.read_log(table, bucket, first, end, columns) if first < end else ():
        newest.extend(map(_change, batch.filter(match(batch)).select([OFFSET, TIMESTAMP, CHANGE_TYPE]).to_pylist()))
    entries = [e for e in plugin.coordinator().ledger(table.path) if e.bucket == bucket]
    changes = [replace(c, entry=_entry_of(c.offset, entries)) for c in newest]
    try:
        reader = load_lake(*plugin.lake_options(table)).open_reader(table)
        lake = _Lake(reader, bucket)
        changes = [lake.follow(c) for c in changes]
        notes: tuple[str, ...] = lake.notes
    except LakewardError as error:
        notes = (f"the lake could not be read: {error}",)
    return RowTrace(bucket=bucket, log_start=bounds.start, changes=tuple(reversed(changes)), notes=notes)


def key_match(key: pa.Table) -> Match:
    """`key`: one row of the key's columns."""
    values = {name: key.column(name)[0] for name in key.column_names}

    def match(batch: pa.RecordBatch) -> pa.Array:
        matching = pa.array(np.ones(batch.num_rows, np.bool_))
        for name, value in values.items():
            column = batch.column(name)
            matching = pc.and_(matching, pc.fill_null(pc.equal(column, value.cast(column.type)), False))
        return matching

    return match


def _change(row: dict[str, Any]) -> TracedChange:
    at_ms = round(row[TIMESTAMP].timestamp() * 1000)
    return TracedChange(offset=row[OFFSET], kind=ChangeType(row[CHANGE_TYPE]), at_ms=at_ms)


def _entry_of(offset: int, entries: Sequence[LedgerEntry]) -> LedgerEntry | None:
    """Returns the entry of the newest generation that has it."""
    holding = [e for e in entries if e.range.start <= offset < e.range.stop and e.snapshot_id is not None]
    return max(holding, key=lambda e: e.generation, default=None)


class _Lake:
    """Looks one bucket up in the snapshots that the lake keeps. Each file is read once."""

    def __init__(self, reader: LakeReader, bucket: Bucket) -> None:
        self._reader, self._bucket = reader, bucket
        retained = list(reader.snapshots())
        self._snapshots = retained[-MOST_SNAPSHOTS:]
        self._files: dict[SnapshotId, Sequence[LakeFile]] = {}
        self._offsets: dict[str, Offsets | None] = {}
        left_out = len(retained) - len(self._snapshots)
        self.notes = (f"{left_out:,} older snapshots of the lake were not looked at",) if left_out else ()

    def follow(self, change: TracedChange) -> TracedChange:
        if change.entry is None or change.kind not in _LIVE:
            return change
        places: list[RowPlace] = []
        for snapshot in self._snapshots:
            if snapshot.committed_at_ms < change.at_ms:
                continue
            row = self._find(snapshot, change.offset)
            if row is None:
                if places:
                    removal = self._removal(snapshot, places[-1])
                    return replace(change, places=tuple(places), removal=removal)
                continue
            file, position = row
            if not places or places[-1].file != file.path:
                places.append(_place(snapshot, file, position, is_first=not places))
        return replace(change, places=tuple(places))

    def _find(self, snapshot: LakeSnapshot, offset: int) -> tuple[LakeFile, int | None] | None:
        """The live row."""
        for file in self._at(snapshot.snapshot_id):
            if file.offsets is not None and not file.offsets.start <= offset < file.offsets.stop:
                continue
            if file.path not in self._offsets:
                self._offsets[file.path] = self._reader.row_offsets(file)
            offsets = self._offsets[file.path]
            if offsets is None:
                if file.offsets is not None:
                    return file, None
                continue
            at = np.flatnonzero(offsets == offset)
            if len(at):
                dead = self._reader.deleted_offsets(file) if file.deletes else None
                if dead is None or not dead.mask(offsets[at]).any():
                    return file, int(at[0])
        return None

    def _removal(self, snapshot: LakeSnapshot, last: RowPlace) -> RowRemoval:
        files = {f.path: f for f in self._at(snapshot.snapshot_id)}
        before = {f.path: f for f in self._before(snapshot)}.get(last.file)
        deletes = [] if last.file not in files else files[last.file].deletes
        had = {d.path for d in before.deletes} if before is not None else set[str]()
        added = next((d.path for d in deletes if d.path not in had), None)
        return RowRemoval(
            snapshot_id=snapshot.snapshot_id, at_ms=snapshot.committed_at_ms, job=snapshot.job, file=added
        )

    def _before(self, snapshot: LakeSnapshot) -> Sequence[LakeFile]:
        at = self._snapshots.index(snapshot)
        return self._at(self._snapshots[at - 1].snapshot_id) if at else ()

    def _at(self, snapshot_id: SnapshotId) -> Sequence[LakeFile]:
        if snapshot_id not in self._files:
            self._files[snapshot_id] = [
                f for f in self._reader.files(snapshot_id) if f.bucket is None or f.bucket == self._bucket
            ]
        return self._files[snapshot_id]


def _place(snapshot: LakeSnapshot, file: LakeFile, position: int | None, *, is_first: bool) -> RowPlace:
    return RowPlace(
        file=file.path,
        position=position,
        snapshot_id=snapshot.snapshot_id,
        since_ms=snapshot.committed_at_ms,
        job=snapshot.job,
        rewrite_id=None if is_first else snapshot.rewrite_id,
    )
