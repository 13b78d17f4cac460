# SPDX-License-Identifier: Apache-2.0
"""Reconcile on the memory lake: what our newest snapshot in main's history says (design.md 6.1)."""

from __future__ import annotations

import json
from dataclasses import replace

from lakeward.errors import InvalidRequest, LakeForeign, LakeRolledBack, LakeTampered
from lakeward.lake.memory.rows import high_marks
from lakeward.lake.memory.table import MemoryTable, Snapshot
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


def load_base(table: MemoryTable, table_id: TableId, *, as_is: bool = False) -> LakeBase:
    """Raises `LakeForeign`, `LakeRolledBack` (not when `as_is`), `LakeTampered`."""
    chain, is_broken = ancestors(table, table.head)
    newest = next((s for s in chain if OFFSETS_KEY in s.summary), None)
    if table.tag is not None and table.tag not in {s.number for s in chain} and not as_is:
        tagged = table.snapshots[table.tag]
        if not (is_broken and _stands_for(table, chain[0], tagged)):
            raise LakeRolledBack(table=str(table.path), head=str(table.head), ours=str(table.tag))
        newest = newest or tagged
    head = None if table.head is None else table.snapshots[table.head].id
    return LakeBase(head=head) if newest is None else _base_of(table, newest, table_id, head=head)


def ancestors(table: MemoryTable, number: int | None) -> tuple[list[Snapshot], bool]:
    """A snapshot and its retained ancestors, newest first, and whether expiry has cut the chain."""
    chain = []
    while number is not None and number in table.snapshots:
        chain.append(table.snapshots[number])
        number = table.snapshots[number].parent
    return chain, number is not None


def owner_of(table: MemoryTable) -> TableId | None:
    """The table id that our newest snapshot carries."""
    chain, _ = ancestors(table, table.head)
    candidates = [*chain, *([table.snapshots[table.tag]] if table.tag is not None else [])]
    return next((TableId(s.summary[TABLE_ID_KEY]) for s in candidates if TABLE_ID_KEY in s.summary), None)


def describe(table: MemoryTable, snapshot: Snapshot) -> LakeSnapshot:
    """A snapshot as the plug point shows it."""
    summary = snapshot.summary
    return decode_snapshot(
        summary,
        snapshot_id=snapshot.id,
        parent_id=None if snapshot.parent is None else _id(snapshot.parent),
        committed_at_ms=snapshot.committed_at_ms,
        operation=snapshot.operation,
        offsets=_offsets(table, snapshot) if OFFSETS_KEY in summary else None,
        sequence=snapshot.number,
    )


def _stands_for(table: MemoryTable, head: Snapshot, tagged: Snapshot) -> bool:
    """Expiry took the snapshots between main and the tag; the same rows are there, so nobody rolled back."""
    return head.number > tagged.number and high_marks(table, head) == high_marks(table, tagged)


def _base_of(table: MemoryTable, newest: Snapshot, table_id: TableId, *, head: SnapshotId | None) -> LakeBase:
    owner = newest.summary.get(TABLE_ID_KEY, table_id)
    if owner != table_id:
        raise LakeForeign(table=str(table.path), found=owner, expected=table_id)
    base = decode_base(
        newest.summary,
        table=str(table.path),
        snapshot_id=newest.id,
        head=head,
        offsets=_offsets(table, newest),
        token=decode_token(newest.summary, newest.id),
    )
    return replace(base, fence=_highest(table, FENCE_KEY), generation=_highest(table, GENERATION_KEY))


def _highest(table: MemoryTable, key: str) -> int:
    """Of all retained snapshots: neither number goes back, also when main was moved back."""
    return max(int(s.summary.get(key, "0")) for s in table.snapshots.values())


def _offsets(table: MemoryTable, snapshot: Snapshot) -> OffsetMap:
    try:
        return OffsetMap.from_json(json.loads(snapshot.summary[OFFSETS_KEY]))
    except (ValueError, InvalidRequest) as error:
        raise LakeTampered(table=str(table.path), snapshot=snapshot.id, what=OFFSETS_KEY, reason=str(error)) from error


def _id(number: int) -> SnapshotId:
    return SnapshotId(str(number))
