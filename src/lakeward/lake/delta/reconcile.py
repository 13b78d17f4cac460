# SPDX-License-Identifier: Apache-2.0
"""Reconcile on a Delta table: what our newest commit says, and whether others restored an older version since."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from lakeward.errors import InvalidRequest, LakeForeign, LakeRolledBack, LakeTampered
from lakeward.lake.delta.actions import VERSION_KEY, DeltaTableState, LogEntry
from lakeward.lake.delta.log import DeltaLog, Listing
from lakeward.model.ids import SnapshotId, TableId
from lakeward.model.offsets import OffsetMap
from lakeward.model.round import LakeBase
from lakeward.spi.lakefile import LakeSnapshot
from lakeward.spi.snapshotkeys import (
    FENCE_KEY,
    GENERATION_KEY,
    OFFSETS_KEY,
    TABLE_ID_KEY,
    decode_base,
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
    if restored is not None:
        if not as_is:
            raise LakeRolledBack(table=log.table, head=str(ground.head_id), ours=newest[VERSION_KEY])
        keys = _restored_keys(log, restored, ground.listing)
        if not keys:
            return LakeBase(head=ground.head_id, loaded=ground)
    owner = keys.get(TABLE_ID_KEY, table_id)
    if owner != table_id:
        raise LakeForeign(table=log.table, found=owner, expected=table_id)
    at = SnapshotId(keys[VERSION_KEY])
    offsets, token = parse_offsets(keys, log.table, at), decode_token(keys, at)
    base = decode_base(keys, table=log.table, snapshot_id=at, head=ground.head_id, offsets=offsets, token=token)
    every = [newest, *(e.keys for e in since)]
    fence, generation = (max(int(k.get(key, "0")) for k in every) for key in (FENCE_KEY, GENERATION_KEY))
    return replace(base, fence=fence, generation=generation, loaded=ground)


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
        offsets=parse_offsets(entry.keys, table, entry.snapshot_id) if entry.keys else None,
        sequence=entry.version,
    )


def parse_offsets(keys: Mapping[str, str], table: str, snapshot_id: SnapshotId) -> OffsetMap:
    try:
        return OffsetMap.from_json(json.loads(keys[OFFSETS_KEY]))
    except (KeyError, ValueError, InvalidRequest) as error:
        raise LakeTampered(table=table, snapshot=snapshot_id, what=OFFSETS_KEY, reason=str(error)) from error
