# SPDX-License-Identifier: Apache-2.0
"""Offsets, token and fence in a snapshot's summary: read and written here, every value a string."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from lakeward.errors import InvalidRequest, LakePathRefused, LakeTampered
from lakeward.lake.iceberg.meta.ownpaths import offsets_storage
from lakeward.model import OffsetMap, SnapshotId, TableId
from lakeward.spi import (
    COMMIT_USER,
    COMMIT_USER_KEY,
    OFFSETS_KEY,
    OWN_OFFSETS_KEY,
    ROWS_KEY,
    TABLE_ID_KEY,
    TAG,
    FlussPartitions,
    LakeTotals,
    decode_fluss_offsets,
    table_id_in,
)

INLINE_LIMIT = 16 * 1024
"""An offset map above this goes to a file: every metadata file holds every retained summary."""

FOREIGN_REMOVED_KEY = "lakeward.foreign-removed"
"""Number of rows that other engines deleted and no round has missed yet."""

UNCOUNTED = "uncounted"
"""Replaces that number after deletes by key, whose rows are not counted."""

MISSING_KEY = "lakeward.missing-replaced"
"""Number of this round's replaced rows that other engines had deleted."""


def summary_of(snapshot: Snapshot) -> dict[str, str]:
    if snapshot.summary is None:
        return {}
    return {
        "operation": snapshot.summary.operation.value,
        **{k: str(v) for k, v in snapshot.summary.additional_properties.items()},
    }


class SummaryReader:
    """Reads one table's summaries, ours and the Fluss plugin's. Offset files are kept once read: they never change."""

    def __init__(self, table: str, table_id: TableId, io: FileIO, partitions: FlussPartitions | None = None) -> None:
        """`partitions`: Fluss's partition ids and their names, for a table of a Fluss cluster."""
        self.table, self.table_id, self._io, self._partitions = table, table_id, io, partitions
        self._files: dict[str, dict[str, Any]] = {}

    def owner(self, snapshot: Snapshot) -> str | None:
        """Returns the table id in the snapshot; None for a foreign one. The Fluss plugin's is in the path of its
        offsets file, which is deleted once a newer snapshot is registered with Fluss."""
        summary = summary_of(snapshot)
        if TABLE_ID_KEY in summary:
            return summary[TABLE_ID_KEY]
        if summary.get(COMMIT_USER_KEY) != COMMIT_USER or OFFSETS_KEY not in summary:
            return None
        path = summary[OFFSETS_KEY]
        return table_id_in(path) or str(self._body(SnapshotId(str(snapshot.snapshot_id)), path).get("table_id", ""))

    def offsets(self, snapshot_id: SnapshotId, summary: Mapping[str, str]) -> OffsetMap:
        """Raises `LakeTampered` when they cannot be read."""
        text = summary.get(OWN_OFFSETS_KEY, summary.get(OFFSETS_KEY))
        if text is None:
            raise self._tampered(snapshot_id, "the summary has none")
        body = self._body(snapshot_id, text)
        try:
            return decode_fluss_offsets(body, self._partitions) if "offsets" not in body else OffsetMap.from_json(body)
        except (InvalidRequest, KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._tampered(snapshot_id, str(error)) from error

    def _body(self, snapshot_id: SnapshotId, text: str) -> dict[str, Any]:
        if text not in self._files:
            try:
                raw = text if text.lstrip().startswith("{") else self._read(text)
                body = json.loads(raw)
                if not isinstance(body, dict):
                    raise ValueError("it is not a JSON object")
            except (OSError, ValueError, LakePathRefused) as error:
                raise self._tampered(snapshot_id, str(error)) from error
            self._files[text] = body
        return self._files[text]

    def _read(self, path: str) -> bytes:
        with offsets_storage(self._io, path).new_input(path).open() as source:
            raw: bytes = source.read()
            return raw

    def _tampered(self, snapshot_id: SnapshotId, reason: str) -> LakeTampered:
        return LakeTampered(table=self.table, snapshot=snapshot_id, what=OFFSETS_KEY, reason=reason)


def foreign_removed_keys(removed: int | None, missing: int) -> dict[str, str]:
    """Reads the number of rows that other engines deleted and no round has missed yet; each of our commits passes it
    on."""
    keys = {MISSING_KEY: str(missing)} if missing else {}
    if removed is None or removed > missing:
        keys[FOREIGN_REMOVED_KEY] = UNCOUNTED if removed is None else str(removed - missing)
    return keys


def totals_of(metadata: TableMetadata) -> LakeTotals:
    """Figures of the head."""
    head = metadata.current_snapshot()
    summary = {} if head is None else summary_of(head)
    total, counted = partial(_total, summary), summary.get(ROWS_KEY)
    return LakeTotals(
        data_files=total("data-files"),
        delete_files=total("delete-files"),
        rows=max(0, total("records") - total("position-deletes")) if counted is None else int(counted),
        bytes=total("files-size"),
        snapshots=len(metadata.snapshots),
        is_exact=counted is not None or total("equality-deletes") == 0,
    )


def _total(summary: dict[str, str], key: str) -> int:
    return int(summary.get(f"total-{key}", "0"))


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
    """Our commits as seen from main's head. `newest`: the one that main is based on, which has offsets, token and
    fence; of another table if `owner` is another id. `foreign`: later snapshots, newest first. `tagged`: our last
    commit, wherever main is."""

    newest: Snapshot | None
    foreign: tuple[Snapshot, ...]
    tagged: Snapshot | None = None
    owner: str | None = None
    is_rolled_back: bool = False

    def foreign_removed(self) -> int | None:
        """Counts rows that other engines removed and no round has missed yet; None: unknown (equality deletes)."""
        newest_summary = {} if self.newest is None else summary_of(self.newest)
        if newest_summary.get(FOREIGN_REMOVED_KEY) == UNCOUNTED:
            return None
        total = _number(newest_summary, FOREIGN_REMOVED_KEY)
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
    """Follows parents from main's head, or from the given snapshot."""
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
