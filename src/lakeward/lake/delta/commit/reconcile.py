# SPDX-License-Identifier: Apache-2.0
"""Reconcile on a Delta table: what our newest commit says, and whether others restored an older version since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lakeward.errors import LakeForeign, LakeRolledBack
from lakeward.lake.delta.meta.actions import VERSION_KEY, WITNESS_KEY, AddFile, DeltaTableState, LogEntry
from lakeward.lake.delta.meta.columns import table_schema
from lakeward.lake.delta.meta.log import DeltaLog, Listing
from lakeward.lake.delta.scan.rows import DeltaFileRows
from lakeward.model.ids import SnapshotId, TableId
from lakeward.model.round import LakeBase
from lakeward.spi.lakefile import LakeSnapshot
from lakeward.spi.snapshotkeys import (
    FENCE_KEY,
    GENERATION_KEY,
    ROWS_KEY,
    TABLE_ID_KEY,
    decode_base,
    decode_offsets,
    decode_snapshot,
    decode_token,
)

_RESTORE = "RESTORE"
_OPERATIONS = {"WRITE": "append", "MERGE": "overwrite", "OPTIMIZE": "replace"}
"""Delta's words and the plug point's."""


@dataclass(frozen=True)
class DeltaGround:
    """The table as it was found: what a commit is built on."""

    listing: Listing
    state: DeltaTableState
    head: LogEntry | None

    @classmethod
    def load(cls, log: DeltaLog) -> DeltaGround:
        """Raises `LakeTableGone`, `LakeSchemaBroken`."""
        listing = log.listing()
        return cls(listing, log.load(listing=listing), log.find_head(listing))

    @property
    def head_id(self) -> SnapshotId | None:
        return None if self.head is None else self.head.snapshot_id


def load_base(log: DeltaLog, table_id: TableId, ground: DeltaGround, *, as_is: bool = False) -> LakeBase:
    """Raises `LakeForeign`, `LakeRolledBack` (not when `as_is`), `LakeTampered`."""
    newest = ground.state.keys
    if not newest:
        return LakeBase(head=ground.head_id, loaded=ground)
    since = list(log.entries([v for v in ground.listing.versions if v > int(newest[VERSION_KEY])]))
    restored = next((e for e in reversed(since) if e.operation == _RESTORE), None)
    keys: Mapping[str, str] = newest
    if restored is not None or _may_be_restored(log, ground, newest):
        if not as_is:
            raise LakeRolledBack(table=log.table, head=str(ground.head_id), ours=newest[VERSION_KEY])
        keys = {} if restored is None else _restored_keys(log, restored, ground.listing)
        if not keys:
            return LakeBase(head=ground.head_id, loaded=ground)
    owner = keys.get(TABLE_ID_KEY, table_id)
    if owner != table_id:
        raise LakeForeign(table=log.table, found=owner, expected=table_id)
    at = SnapshotId(keys[VERSION_KEY])
    offsets, token = decode_offsets(keys, log.table, at), decode_token(keys, at)
    base = decode_base(keys, table=log.table, snapshot_id=at, head=ground.head_id, offsets=offsets, token=token)
    every = [newest, *(e.keys for e in since)]
    fence, generation = (max(int(k.get(key, "0")) for k in every) for key in (FENCE_KEY, GENERATION_KEY))
    return replace(base, fence=fence, generation=generation, loaded=ground)


def _may_be_restored(log: DeltaLog, ground: DeltaGround, newest: Mapping[str, str]) -> bool:
    """Others cleaned entries up that came after ours, and the table has other rows than we left: what they did is not
    known. With as many rows, and those of our newest commit among them, they compacted."""
    since = range(int(newest[VERSION_KEY]) + 1, ground.state.version + 1)
    if ROWS_KEY not in newest or set(since) <= set(ground.listing.versions):
        return False
    rows = DeltaFileRows(log.files, log.root, log.table, table_schema(()))
    if sum(rows.count(f) for f in ground.state.files.values()) != int(newest[ROWS_KEY]):
        return True
    return WITNESS_KEY in newest and not _has_witness(ground.state, rows, newest[WITNESS_KEY])


def choose_witness(state: DeltaTableState, new: Sequence[AddFile]) -> dict[str, str]:
    """What a commit of these files says; without a row in them, what the one before said."""
    for file in new:
        bucket = file.bucket(state.partition_keys)
        if bucket is not None and file.offsets is not None and (file.records or 0) > file.deleted:
            return {WITNESS_KEY: f"{bucket}@{file.offsets.start}"}
    return {k: v for k, v in state.keys.items() if k == WITNESS_KEY}


def _has_witness(state: DeltaTableState, rows: DeltaFileRows, witness: str) -> bool:
    bucket, _, offset = witness.rpartition("@")
    for file in state.files.values():
        is_near = file.offsets is None or file.offsets.stop > int(offset)
        if is_near and str(file.bucket(state.partition_keys)) == bucket:
            alive = np.delete(rows.offsets(file), rows.deleted(file).values)
            if (alive >= int(offset)).any():
                return True
    return False


def _restored_keys(log: DeltaLog, restored: LogEntry, listing: Listing) -> Mapping[str, str]:
    """Of the version that others went back to. Where they named a time, or it is gone, nothing is known."""
    text = str((restored.info.get("operationParameters") or {}).get("version", ""))
    return log.load(int(text), listing).keys if text.isdigit() and int(text) in listing.versions else {}


def describe(entry: LogEntry, table: str) -> LakeSnapshot:
    """A snapshot as the plug point shows it."""
    return decode_snapshot(
        entry.keys,
        snapshot_id=entry.snapshot_id,
        parent_id=SnapshotId(str(entry.version - 1)) if entry.version else None,
        committed_at_ms=entry.committed_at_ms,
        operation=_OPERATIONS.get(entry.operation, entry.operation.lower()),
        offsets=decode_offsets(entry.keys, table, entry.snapshot_id) if entry.keys else None,
        sequence=entry.version,
    )
