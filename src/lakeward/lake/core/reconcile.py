# SPDX-License-Identifier: Apache-2.0
"""Reconcile (design.md 6.1): reads the base from our newest commit below the head, and detects rollbacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lakeward.errors import CommitConflict, LakeForeign, LakeRolledBack, LakeTableGone, LakewardError
from lakeward.lake.core.history import LogSnapshot
from lakeward.lake.core.log import G, SnapshotHistory
from lakeward.model import LakeBase, RoundId, TableId
from lakeward.spi import (
    FENCE_KEY,
    GENERATION_KEY,
    TABLE_ID_KEY,
    LakeSnapshot,
    Precondition,
    decode_base,
    decode_snapshot,
    decode_token,
    is_of,
)


def load_base(log: SnapshotHistory[G], ground: G, table_id: TableId, *, as_is: bool = False) -> LakeBase:
    """Loads the base of the next commit. Raises `LakeForeign`, `LakeTampered`; `LakeRolledBack` unless `as_is`."""
    history, head = log.own_history(ground), ground.head_id
    if history.is_rolled_back and history.newest is not None and not as_is:
        raise LakeRolledBack(table=log.table, head=head or "none", ours=history.newest.snapshot_id)
    commit = history.stands_on
    if commit is None:
        return LakeBase(head=head, loaded=ground)
    owner = commit.keys.get(TABLE_ID_KEY, table_id)
    if owner != table_id:
        raise LakeForeign(table=log.table, found=owner, expected=table_id)
    base = decode_base(
        commit.keys,
        table=log.table,
        snapshot_id=commit.snapshot_id,
        head=head,
        offsets=log.offsets(commit),
        token=decode_token(commit.keys, commit.snapshot_id),
    )
    fence, generation = (max(int(k.get(key, "0")) for k in history.counted) for key in (FENCE_KEY, GENERATION_KEY))
    return replace(base, fence=fence, generation=generation, loaded=ground)


def find_owner(log: SnapshotHistory[G], ground: G) -> TableId | None:
    """Returns the table id in our newest commit, wherever the head is."""
    own = log.own_history(ground)
    owners = (c.keys.get(TABLE_ID_KEY) for c in (own.stands_on, own.newest) if c is not None)
    return next((TableId(owner) for owner in owners if owner is not None), None)


def describe(log: SnapshotHistory[Any], snapshot: LogSnapshot) -> LakeSnapshot:
    """Describes a snapshot for the plug point."""
    described = decode_snapshot(
        {**snapshot.facts, **snapshot.keys},
        snapshot_id=snapshot.snapshot_id,
        parent_id=snapshot.parent_id,
        committed_at_ms=snapshot.committed_at_ms,
        operation=snapshot.operation,
        offsets=log.offsets_of(snapshot),
        sequence=snapshot.sequence,
    )
    return described if snapshot.totals is None else replace(described, totals=snapshot.totals)


def find_round(log: SnapshotHistory[G], ground: G, round_id: RoundId) -> LogSnapshot | None:
    """Finds the snapshot of a round. A rewrite copies the id of the round before it, so the oldest match is the round's
    own."""
    own = (s for s in log.newest_first(ground, with_expired=True) if is_of(s.keys, round_id))
    return min(own, key=lambda s: s.sequence, default=None)


def describe_conflict(
    table: str, round_id: RoundId, reason: str, precondition: Precondition, load_base: Callable[[], LakeBase]
) -> CommitConflict:
    """Builds the conflict of a commit that did not land. `load_base` loads the current table; if that fails, the round
    may try again. Raises `LakeTableGone` if the table does not exist."""
    try:
        lost = precondition.breach(load_base()) is not None
    except LakeTableGone:
        raise
    except LakewardError:
        lost = False
    return CommitConflict(table=table, round_id=round_id, reason=reason, lost=lost)
