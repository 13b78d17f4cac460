# SPDX-License-Identifier: Apache-2.0
"""Tags that keep the head of a table readable where no lease does: for readers of a table that other systems expire."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.update import RemoveSnapshotRefUpdate, SetSnapshotRefUpdate, TableUpdate

from lakeward.errors import CommitConflict, SnapshotGone
from lakeward.lake.core.history import MAX_AGE_KEY
from lakeward.lake.core.log import HeadMoved
from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.log import IcebergSnapshotLog
from lakeward.model import Clock, SnapshotId, TableId, TableInfo

PREFIX = "lakeward-live-"
_USUAL_AGE_MS = 5 * 24 * 3_600_000
"""Iceberg's own default of `history.expire.max-snapshot-age-ms`."""

_ATTEMPTS = 5


@dataclass(frozen=True, kw_only=True)
class _Held:
    head: SnapshotId
    until_ms: int


class HeadTags:
    """Expiry removes a superseded snapshot once it is as old as the table's `history.expire.max-snapshot-age-ms`,
    counted from its commit: a younger head stays for long enough by itself, and an older one gets a tag, whose own age
    limit lets any engine's expiry drop it. Not thread-safe for one table."""

    def __init__(self, clock: Clock, keep_ms: int) -> None:
        self._clock, self._keep_ms = clock, keep_ms
        self._held: dict[TableId, _Held] = {}

    def hold(self, connection: IcebergConnection, table: TableInfo, head: SnapshotId) -> None:
        """For `keep_ms` at least, half as long again so that a tag is not renewed for each call. Raises `SnapshotGone`,
        `CommitConflict`, and what the catalog raises."""
        now_ms, held = self._clock.now_ms(), self._held.get(table.table_id)
        if held is not None and held.head == head and held.until_ms >= now_ms + self._keep_ms:
            return
        log = IcebergSnapshotLog(connection, table)
        for _ in range(_ATTEMPTS):
            loaded = log.load().table
            until_ms = _stays_until(loaded.metadata, table, head)
            if until_ms < now_ms + self._keep_ms:
                until_ms = now_ms + self._keep_ms * 3 // 2
                try:
                    log.update(loaded, "tag the head of", *plan_tags(loaded.metadata, int(head), now_ms, until_ms))
                except HeadMoved as error:
                    reason = str(error)
                    continue
            self._held[table.table_id] = _Held(head=head, until_ms=until_ms)
            return
        raise CommitConflict(table=str(table.path), round_id=PREFIX + head, reason=reason)

    def forget(self, table_id: TableId) -> None:
        self._held.pop(table_id, None)


def _stays_until(metadata: TableMetadata, table: TableInfo, head: SnapshotId) -> int:
    snapshot = metadata.snapshot_by_id(int(head))
    if snapshot is None:
        raise SnapshotGone(table=str(table.path), snapshot=head, advice="load the table again")
    age = metadata.properties.get(MAX_AGE_KEY, "")
    return snapshot.timestamp_ms + (int(age) if age.isdigit() else _USUAL_AGE_MS)


def plan_tags(metadata: TableMetadata, head: int, now_ms: int, until_ms: int) -> list[TableUpdate]:
    """The tag of this head until then, and tags whose time is over. Pure."""
    over = [name for name, ref in metadata.refs.items() if name.startswith(PREFIX) and _is_over(metadata, ref, now_ms)]
    snapshot = metadata.snapshot_by_id(head)
    assert snapshot is not None, "the caller looked it up"
    tag = {
        "ref-name": f"{PREFIX}{head}",
        "type": SnapshotRefType.TAG,
        "snapshot-id": head,
        "max-ref-age-ms": until_ms - snapshot.timestamp_ms,
    }
    removed = [RemoveSnapshotRefUpdate.model_validate({"ref-name": n}) for n in over if n != tag["ref-name"]]
    return [SetSnapshotRefUpdate.model_validate(tag), *removed]


def _is_over(metadata: TableMetadata, ref: SnapshotRef, now_ms: int) -> bool:
    snapshot = metadata.snapshot_by_id(ref.snapshot_id)
    return snapshot is None or snapshot.timestamp_ms + (ref.max_ref_age_ms or 0) < now_ms
