# SPDX-License-Identifier: Apache-2.0
"""What a snapshot's summary says of offsets, token and fence: read and written here, every value a string."""

from __future__ import annotations

import json
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.table.snapshots import Snapshot

from lakeward.errors import InvalidRequest, LakePathRefused, LakeTampered
from lakeward.lake.iceberg.meta.ownpaths import offsets_storage
from lakeward.model.ids import SnapshotId, TableId
from lakeward.model.offsets import OffsetMap
from lakeward.model.round import LakeBase
from lakeward.spi.flussoffsets import FlussPartitions, decode_fluss_offsets, table_id_in
from lakeward.spi.lakefile import LakeSnapshot
from lakeward.spi.snapshotkeys import (
    COMMIT_USER,
    COMMIT_USER_KEY,
    OFFSETS_KEY,
    OWN_OFFSETS_KEY,
    TABLE_ID_KEY,
    decode_base,
    decode_snapshot,
    decode_token,
)

INLINE_LIMIT = 16 * 1024
"""An offset map above this goes to a file: every metadata file holds every retained summary."""

FOREIGN_REMOVED_KEY = "lakeward.foreign-removed"
"""Rows that others deleted and that no round of ours missed yet."""

UNCOUNTED = "uncounted"
"""In place of that number: others deleted by key, and nobody knows how many rows."""

MISSING_KEY = "lakeward.missing-replaced"
"""Replaced rows of this round that were not there any more, explained by others' deletes."""


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
        """The table id the snapshot carries; None for a foreign one. The Fluss plugin's is in the path of its offsets
        file, which is gone once a newer snapshot is registered with Fluss."""
        summary = summary_of(snapshot)
        if TABLE_ID_KEY in summary:
            return summary[TABLE_ID_KEY]
        if summary.get(COMMIT_USER_KEY) != COMMIT_USER or OFFSETS_KEY not in summary:
            return None
        path = summary[OFFSETS_KEY]
        return table_id_in(path) or str(self._body(snapshot, path).get("table_id", ""))

    def offsets(self, snapshot: Snapshot) -> OffsetMap:
        """Raises `LakeTampered` when they cannot be read."""
        summary = summary_of(snapshot)
        text = summary.get(OWN_OFFSETS_KEY, summary.get(OFFSETS_KEY))
        if text is None:
            raise self._tampered(snapshot, "the summary has none")
        body = self._body(snapshot, text)
        try:
            return decode_fluss_offsets(body, self._partitions) if "offsets" not in body else OffsetMap.from_json(body)
        except (InvalidRequest, KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._tampered(snapshot, str(error)) from error

    def token(self, snapshot: Snapshot) -> str:
        return decode_token(summary_of(snapshot), SnapshotId(str(snapshot.snapshot_id)))

    def snapshot(self, snapshot: Snapshot, offsets: OffsetMap | None) -> LakeSnapshot:
        summary, parent = summary_of(snapshot), snapshot.parent_snapshot_id
        return decode_snapshot(
            summary,
            snapshot_id=SnapshotId(str(snapshot.snapshot_id)),
            parent_id=None if parent is None else SnapshotId(str(parent)),
            committed_at_ms=snapshot.timestamp_ms,
            operation=summary.get("operation", ""),
            offsets=offsets,
            sequence=snapshot.sequence_number or 0,
        )

    def base(self, newest: Snapshot, head: SnapshotId | None) -> LakeBase:
        """What our newest snapshot says that a commit on `head` stands on. Raises `LakeTampered`."""
        return decode_base(
            summary_of(newest),
            table=self.table,
            snapshot_id=SnapshotId(str(newest.snapshot_id)),
            head=head,
            offsets=self.offsets(newest),
            token=self.token(newest),
        )

    def _body(self, snapshot: Snapshot, text: str) -> dict[str, Any]:
        if text not in self._files:
            try:
                raw = text if text.lstrip().startswith("{") else self._read(text)
                body = json.loads(raw)
                if not isinstance(body, dict):
                    raise ValueError("it is no JSON object")
            except (OSError, ValueError, LakePathRefused) as error:
                raise self._tampered(snapshot, str(error)) from error
            self._files[text] = body
        return self._files[text]

    def _read(self, path: str) -> bytes:
        with offsets_storage(self._io, path).new_input(path).open() as source:
            raw: bytes = source.read()
            return raw

    def _tampered(self, snapshot: Snapshot, reason: str) -> LakeTampered:
        return LakeTampered(table=self.table, snapshot=str(snapshot.snapshot_id), what=OFFSETS_KEY, reason=reason)
