# SPDX-License-Identifier: Apache-2.0
"""Reconcile (design.md 6.1): which snapshot of ours main stands on, and whether someone moved main behind our back.

The order of things follows `reconcile` of the protocol's model. Only the comparison of live rows does I/O, and only
where a chain was cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from lakeward.errors import LakeForeign, LakeRolledBack
from lakeward.lake.iceberg.meta.summary import FOREIGN_REMOVED_KEY, UNCOUNTED, SummaryReader, summary_of
from lakeward.model.ids import SnapshotId
from lakeward.model.round import LakeBase
from lakeward.spi.snapshotkeys import TAG

SameRows = Callable[[Snapshot, Snapshot], bool]


@dataclass(frozen=True)
class Ancestry:
    """Main's chain from the head back, as far as it is retained."""

    chain: tuple[Snapshot, ...]
    is_cut: bool
    """Ancestors are missing: expired by someone. (PyIceberg's expiry clears the parent, Java's leaves its id.)"""

    @property
    def head(self) -> Snapshot | None:
        return self.chain[0] if self.chain else None


@dataclass(frozen=True)
class Reconciled:
    base: LakeBase
    newest: Snapshot | None
    """Our newest snapshot, from which offsets, token and fence are."""

    foreign: tuple[Snapshot, ...]
    """Snapshots of others since then, newest first."""

    tag: int | None

    def foreign_removed(self) -> int | None:
        """How many rows others removed that no round missed yet; None: nobody can say (equality deletes)."""
        known = {} if self.newest is None else summary_of(self.newest)
        if known.get(FOREIGN_REMOVED_KEY) == UNCOUNTED:
            return None
        total = _number(known, FOREIGN_REMOVED_KEY)
        for snapshot in self.foreign:
            summary = summary_of(snapshot)
            if summary.get("operation") not in ("delete", "overwrite"):
                continue
            if _number(summary, "added-equality-deletes"):
                return None
            total += max(0, _number(summary, "deleted-records") - _number(summary, "added-records"))
            total += _number(summary, "added-position-deletes")
        return total


def walk(metadata: TableMetadata, start: int | None = None) -> Ancestry:
    """Follows parents from main's head, or from the snapshot given."""
    by_id = {s.snapshot_id: s for s in metadata.snapshots}
    at = metadata.current_snapshot_id if start is None else start
    chain: list[Snapshot] = []
    while at is not None and at in by_id:
        chain.append(by_id[at])
        at = by_id[at].parent_snapshot_id
    is_cut = at is not None or bool(chain and (chain[-1].sequence_number or 0) > 1)
    return Ancestry(tuple(chain), is_cut)


def reconcile(
    metadata: TableMetadata, summaries: SummaryReader, same_rows: SameRows, *, as_is: bool = False
) -> Reconciled:
    """Raises `LakeRolledBack`, `LakeForeign`, `LakeTampered`. `as_is`: a rollback is accepted."""
    ancestry = walk(metadata)
    tag = metadata.refs.get(TAG)
    tagged = None if tag is None else metadata.snapshot_by_id(tag.snapshot_id)
    newest, foreign = _newest_of_ours(ancestry, summaries)
    if tagged is not None and not as_is and tagged.snapshot_id not in {s.snapshot_id for s in ancestry.chain}:
        if not _is_cut_not_rolled_back(ancestry, tagged, same_rows):
            head = "none" if ancestry.head is None else str(ancestry.head.snapshot_id)
            raise LakeRolledBack(table=summaries.table, head=head, ours=str(tagged.snapshot_id))
        newest = newest or tagged
    head_id = None if ancestry.head is None else SnapshotId(str(ancestry.head.snapshot_id))
    base = LakeBase(head=head_id) if newest is None else summaries.base(newest, head_id)
    return Reconciled(base, newest, foreign, None if tag is None else tag.snapshot_id)


def _newest_of_ours(ancestry: Ancestry, summaries: SummaryReader) -> tuple[Snapshot | None, tuple[Snapshot, ...]]:
    foreign: list[Snapshot] = []
    for snapshot in ancestry.chain:
        owner = summaries.owner(snapshot)
        if owner == summaries.table_id:
            return snapshot, tuple(foreign)
        if owner is not None:
            raise LakeForeign(table=summaries.table, found=owner, expected=summaries.table_id)
        foreign.append(snapshot)
    return None, tuple(foreign)


def _is_cut_not_rolled_back(ancestry: Ancestry, tagged: Snapshot, same_rows: SameRows) -> bool:
    head = ancestry.head
    if head is None or not ancestry.is_cut or (head.sequence_number or 0) <= (tagged.sequence_number or 0):
        return False
    return same_rows(head, tagged)


def _number(summary: dict[str, str], key: str) -> int:
    text = summary.get(key, "0")
    return int(text) if text.isdigit() else 0
