# SPDX-License-Identifier: Apache-2.0
"""What a snapshot's summary says of offsets, token and fence: read and written here, every value a string."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.table.snapshots import Snapshot

from lakeward.errors import InvalidRequest, LakeTampered
from lakeward.model.bucket import Bucket
from lakeward.model.ids import RoundId, SnapshotId, TableId
from lakeward.model.offsets import OffsetMap
from lakeward.model.table import FLUSS_PARTITIONS, GONE_PARTITION, TableInfo
from lakeward.spi.lake import (
    COMMIT_USER,
    COMMIT_USER_KEY,
    EPOCH_KEY,
    FENCE_KEY,
    GENERATION_KEY,
    JOB_KEY,
    OFFSETS_KEY,
    ROUND_KEY,
    ROWS_KEY,
    TABLE_ID_KEY,
    LakeSnapshot,
)

INLINE_LIMIT = 16 * 1024
"""An offset map above this goes to a file: every metadata file holds every retained summary."""

OWN_OFFSETS_KEY = "lakeward.offsets"
"""Offsets of a snapshot in the Fluss setting, where `fluss-offsets` names a file that Fluss deletes after the next
commit.
"""

_FLUSS_PATH = re.compile(r"-(\d+)/metadata/[^/]+\.offsets$")

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

    def __init__(self, table: str, table_id: TableId, io: FileIO, partitions: Mapping[str, str] | None = None) -> None:
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
        named = _FLUSS_PATH.search(summary[OFFSETS_KEY])
        return named.group(1) if named else str(self._body(snapshot, summary[OFFSETS_KEY]).get("table_id", ""))

    def offsets(self, snapshot: Snapshot) -> OffsetMap:
        """Raises `LakeTampered` when they cannot be read."""
        summary = summary_of(snapshot)
        text = summary.get(OWN_OFFSETS_KEY, summary.get(OFFSETS_KEY))
        if text is None:
            raise self._tampered(snapshot, "the summary has none")
        body = self._body(snapshot, text)
        try:
            return fluss_offsets(body, self._partitions) if "offsets" not in body else OffsetMap.from_json(body)
        except (InvalidRequest, KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._tampered(snapshot, str(error)) from error

    def token(self, snapshot: Snapshot) -> str:
        """The round id; the snapshot's own id where a Flink job wrote it."""
        return summary_of(snapshot).get(ROUND_KEY, str(snapshot.snapshot_id))

    def number(self, snapshot: Snapshot, key: str) -> int:
        text = summary_of(snapshot).get(key, "0")
        try:
            return int(text)
        except ValueError as error:
            raise LakeTampered(
                table=self.table, snapshot=str(snapshot.snapshot_id), what=key, reason=f"{text!r} is no number"
            ) from error

    def snapshot(self, snapshot: Snapshot, offsets: OffsetMap | None) -> LakeSnapshot:
        summary = summary_of(snapshot)
        rows = summary.get(ROWS_KEY, "")
        return LakeSnapshot(
            snapshot_id=SnapshotId(str(snapshot.snapshot_id)),
            parent_id=None if snapshot.parent_snapshot_id is None else SnapshotId(str(snapshot.parent_snapshot_id)),
            committed_at_ms=snapshot.timestamp_ms,
            operation=summary.get("operation", ""),
            round_id=RoundId(summary[ROUND_KEY]) if ROUND_KEY in summary else None,
            offsets=offsets,
            epoch=_int(summary.get(EPOCH_KEY)),
            job=summary.get(JOB_KEY, ""),
            fence=_int(summary.get(FENCE_KEY)),
            generation=_int(summary.get(GENERATION_KEY)),
            table_id=TableId(summary[TABLE_ID_KEY]) if TABLE_ID_KEY in summary else None,
            total_rows=int(rows) if rows.isdigit() else None,
            summary=summary,
        )

    def _body(self, snapshot: Snapshot, text: str) -> dict[str, Any]:
        if text not in self._files:
            try:
                raw = text if text.lstrip().startswith("{") else self._read(text)
                body = json.loads(raw)
                if not isinstance(body, dict):
                    raise ValueError("it is no JSON object")
            except (OSError, ValueError) as error:
                raise self._tampered(snapshot, str(error)) from error
            self._files[text] = body
        return self._files[text]

    def _read(self, path: str) -> bytes:
        with self._io.new_input(path).open() as source:
            raw: bytes = source.read()
            return raw

    def _tampered(self, snapshot: Snapshot, reason: str) -> LakeTampered:
        return LakeTampered(table=self.table, snapshot=str(snapshot.snapshot_id), what=OFFSETS_KEY, reason=reason)


def fluss_partitions(table: TableInfo) -> dict[str, str] | None:
    """Partition id -> name of a table of a Fluss cluster; None for any other."""
    text = table.descriptor.properties.get(FLUSS_PARTITIONS)
    return None if text is None else dict(json.loads(text))


def fluss_offsets(body: Mapping[str, Any], partitions: Mapping[str, str] | None) -> OffsetMap:
    """Fluss's own offsets file; -1 is unknown. Its partitions have numbers; one that Fluss no longer has keeps its
    number.
    """
    if "partition_offsets" in body:
        pairs = [(str(p["partition_id"]), p["bucket_offsets"]) for p in body["partition_offsets"]]
        names = {i: i if partitions is None else partitions.get(i, f"{GONE_PARTITION}{i}") for i, _ in pairs}
        found = {(names[i], n): o for i, offsets in pairs for n, o in enumerate(offsets)}
    else:
        found = {("", n): o for n, o in enumerate(body.get("bucket_offsets", []))}
    return OffsetMap({Bucket(partition, n): int(o) for (partition, n), o in found.items() if int(o) >= 0})


def fluss_body(table_id: str, offsets: OffsetMap, partitions: Mapping[str, str]) -> dict[str, Any]:
    """The inverse: the shape of Fluss's offsets file, by partition number."""
    ids = {name: i for i, name in partitions.items()}
    lists: dict[str, list[int]] = {}
    for bucket, offset in offsets.items():
        numbers = lists.setdefault(bucket.partition, [])
        numbers += [-1] * (bucket.number + 1 - len(numbers))
        numbers[bucket.number] = offset
    head: dict[str, Any] = {"version": 1, "table_id": int(table_id)}
    if set(lists) <= {""}:
        return {**head, "bucket_offsets": lists.get("", [])}
    numbered = {int(ids.get(name) or name.removeprefix(GONE_PARTITION)): found for name, found in lists.items()}
    return {**head, "partition_offsets": [{"partition_id": i, "bucket_offsets": numbered[i]} for i in sorted(numbered)]}


def _int(text: str | None) -> int:
    return int(text) if text is not None and text.lstrip("-").isdigit() else 0
