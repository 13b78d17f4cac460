# SPDX-License-Identifier: Apache-2.0
"""Reconcile (design.md 6.1): which snapshot of ours main stands on, and whether someone moved main behind our back.

The order of things follows `reconcile` of the protocol's model. Only the comparison of live rows does I/O, and only
where a chain was cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from lakeward.lake.iceberg.meta.summary import FOREIGN_REMOVED_KEY, UNCOUNTED, SummaryReader, summary_of
from lakeward.spi import TAG

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
    """Our commits as seen from main's head. `newest`: the one that main stands on, from which offsets, token and fence
    are; of another table where `owner` is another id. `foreign`: snapshots since then, newest first. `tagged`: our last
    commit, wherever main is."""

    newest: Snapshot | None
    foreign: tuple[Snapshot, ...]
    tagged: Snapshot | None = None
    owner: str | None = None
    is_rolled_back: bool = False

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


def reconcile(metadata: TableMetadata, summaries: SummaryReader, same_rows: SameRows) -> Reconciled:
    """Raises `LakeTampered`."""
    ancestry = walk(metadata)
    tag = metadata.refs.get(TAG)
    tagged = None if tag is None else metadata.snapshot_by_id(tag.snapshot_id)
    owned = ((s, summaries.owner(s)) for s in ancestry.chain)
    newest, owner = next(((s, owner) for s, owner in owned if owner is not None), (None, None))
    foreign = tuple(takewhile(lambda s: s is not newest, ancestry.chain))
    reconciled = Reconciled(newest, foreign, tagged, owner)
    if tagged is None or any(s is tagged for s in ancestry.chain) or owner not in (None, summaries.table_id):
        return reconciled
    if not _is_cut_not_rolled_back(ancestry, tagged, same_rows):
        return replace(reconciled, is_rolled_back=True)
    return reconciled if newest is not None else replace(reconciled, newest=tagged, owner=summaries.table_id)


def _is_cut_not_rolled_back(ancestry: Ancestry, tagged: Snapshot, same_rows: SameRows) -> bool:
    head = ancestry.head
    if head is None or not ancestry.is_cut or (head.sequence_number or 0) <= (tagged.sequence_number or 0):
        return False
    return same_rows(head, tagged)


def _number(summary: dict[str, str], key: str) -> int:
    text = summary.get(key, "0")
    return int(text) if text.isdigit() else 0
