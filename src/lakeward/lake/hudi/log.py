# SPDX-License-Identifier: Apache-2.0
"""A Hudi table's timeline, as the commit protocol uses it: its completed instants are the snapshots."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import suppress

from lakeward.lake.core.history import HistoryLimit, LogSnapshot, OwnCommit, OwnHistory
from lakeward.lake.core.log import HeadMoved, SnapshotLog
from lakeward.lake.hudi.changes import HudiChange
from lakeward.lake.hudi.ground import INSTANT_KEY, HudiGround
from lakeward.lake.hudi.landing import NewInstant, head_name, land, undo_unfinished
from lakeward.lake.hudi.meta.columns import to_avro_schema
from lakeward.lake.hudi.meta.slices import SeenFile
from lakeward.lake.hudi.meta.table import HudiTable
from lakeward.lake.hudi.meta.timeline import HudiInstant
from lakeward.model import ExpiringSnapshot, LakeBase, RoundId, SnapshotId, fault_point

_OPERATIONS = {"COMPACT": "replace", "CLUSTER": "replace", "UPSERT": "overwrite", "DELETE_PARTITION": "delete"}
"""Hudi's operations -> the plug point's; any other appends."""


class HudiSnapshotLog(SnapshotLog[HudiGround, HudiChange, NewInstant]):
    lake, ground_type = "hudi", HudiGround

    def __init__(self, table: HudiTable) -> None:
        self._table, self.table = table, table.name

    def load(self) -> HudiGround:
        return HudiGround.load(self._table)

    def newest_first(self, ground: HudiGround, *, with_expired: bool = False) -> Iterator[LogSnapshot]:
        expired = frozenset[str]() if with_expired else ground.expired
        snapshots = reversed(ground.timeline.snapshots)
        return (_log_snapshot(ground, i) for i in snapshots if i.requested not in expired)

    def get(self, ground: HudiGround, snapshot_id: SnapshotId) -> LogSnapshot:
        return _log_snapshot(ground, ground.get(snapshot_id))

    def has(self, ground: HudiGround, snapshot_id: SnapshotId) -> bool:
        return ground.timeline.find(snapshot_id) is not None

    def own_history(self, ground: HudiGround) -> OwnHistory:
        newest, mark = ground.newest_ours(), ground.mark
        return OwnHistory(
            newest=_own(mark if ground.is_marked_gone else newest),
            stands_on=_own(newest),
            is_rolled_back=ground.is_marked_gone,
            counted=tuple(keys for keys in (newest, mark) if keys),
        )

    def own_at(self, ground: HudiGround, snapshot_id: SnapshotId) -> OwnCommit | None:
        return _own(ground.newest_ours(ground.timeline.get(snapshot_id)))

    def encode(self, ground: HudiGround, round_id: RoundId, keys: Mapping[str, str], change: HudiChange) -> bytes:
        return NewInstant(
            round_id=round_id,
            head=head_name(ground.timeline),
            requested=change.requested,
            action=change.action,
            operation=change.operation,
            schema=to_avro_schema(ground.columns, os.path.basename(self._table.root)),
            keys=dict(keys),
            files=change.staged,
            replaced=change.replaced,
        ).to_bytes()

    def parse(self, payload: bytes) -> NewInstant:
        return NewInstant.from_bytes(payload)

    def append(self, request: NewInstant, base: LakeBase, expire: Collection[SnapshotId]) -> LogSnapshot:
        if head_name(self._table.load_timeline()) != request.head:
            raise HeadMoved("the table moved on since the base was read")
        with self._table.lock():
            landed = land(self._table, request, tuple(expire))
        if isinstance(landed, str):
            raise HeadMoved(landed)
        return _log_snapshot(self.load(), landed)

    def settle(self, request: NewInstant) -> None:
        """Deletes the round's folder once it is empty."""
        for folder in {os.path.dirname(f.staged) for f in request.files}:
            with suppress(OSError):
                os.rmdir(folder)

    def limit(self, ground: HudiGround) -> HistoryLimit:
        return HistoryLimit.of(ground.properties)

    def protected(self, ground: HudiGround) -> set[SnapshotId]:
        return {SnapshotId(v) for v in protected(ground)}

    def forget(self, ground: HudiGround, snapshots: Collection[SnapshotId]) -> bool:
        """Expires snapshots under the table's lock, on any head."""
        with self._table.lock():
            undo_unfinished(self._table)
            now = self.load()
            self._table.forget(set(map(str, snapshots)) - protected(now), now.timeline)
        return True

    def references(self, ground: HudiGround) -> set[str]:
        return {s.file.path for s in retained_files(ground, ground.expired)}

    def only_in(self, ground: HudiGround, expired: Sequence[ExpiringSnapshot]) -> list[str]:
        return sorted({s.file.path for s in ground.seen} - self.references(ground))

    def clean(self, ground: HudiGround, expired: Sequence[ExpiringSnapshot]) -> Sequence[str]:
        """Archives instants after their files were deleted: a removed group's files must be deleted before the instant
        that removed it."""
        if not plan_archive(self.load(), self._table.expired()):
            return ()
        with self._table.lock():
            undo_unfinished(self._table)
            if going := plan_archive(self.load(), self._table.expired()):
                fault_point("hudi.before-archive", table=self._table.name)
                self._table.archive(going)
                self._table.forget((), self._table.load_timeline())
        return ()


def _own(keys: Mapping[str, str]) -> OwnCommit | None:
    return OwnCommit(SnapshotId(keys[INSTANT_KEY]), keys) if keys else None


def _log_snapshot(ground: HudiGround, instant: HudiInstant) -> LogSnapshot:
    metadata, before = ground.timeline.metadata(instant), ground.timeline.before(instant)
    return LogSnapshot(
        snapshot_id=instant.id,
        parent_id=None if before is None else before.id,
        committed_at_ms=instant.completed_at_ms,
        operation=_OPERATIONS.get(metadata.operation, "append"),
        sequence=int(instant.completed),
        keys=ground.keys_of(instant),
    )


KEPT_INSTANTS = 30
"""Instants that stay in the timeline, as with Hudi's own archiving by default."""


def protected(ground: HudiGround) -> set[str]:
    """Protects the head, our newest commit, and later foreign commits: the next round looks for their rows."""
    head, newest = ground.timeline.head, ground.newest_ours().get(INSTANT_KEY)
    kept = {i.requested for i in ground.since_ours()}
    return kept | {v for v in (None if head is None else head.requested, newest) if v}


def retained_files(ground: HudiGround, expired: Set[str]) -> list[SeenFile]:
    """Returns files of the head, expired or not, and of snapshots that are not expired."""
    head = ground.timeline.head
    retained = [i.completed for i in ground.timeline.snapshots if i.requested not in expired or i is head]

    def is_retained(seen: SeenFile) -> bool:
        at = bisect_left(retained, seen.since)
        return at < len(retained) and seen.is_in(retained[at])

    return [s for s in ground.seen if is_retained(s)]


def plan_archive(ground: HudiGround, expired: Set[str], keep: int = KEPT_INSTANTS) -> list[HudiInstant]:
    """Plans the oldest instants to archive. Instants older than the timeline's first count as completed, so no instant
    is archived that was requested after a remaining one. The instant of a log file without a base file stays until a
    compaction replaces it with a base file."""
    timeline, going = ground.timeline, list[HudiInstant]()
    old = timeline.instants[: max(0, len(timeline.instants) - keep)]
    if not old:
        return []
    protected_instants = protected(ground) | {s.file.instant for s in retained_files(ground, expired) if s.is_lone}
    for instant in old:
        is_snapshot = instant in timeline.snapshots
        if instant.requested in protected_instants or (is_snapshot and instant.requested not in expired):
            break
        going.append(instant)
    while going:
        remaining = [i.requested for i in timeline.instants[len(going) :]]
        if max(i.requested for i in going) < min((*remaining, *timeline.pending), default=""):
            return going
        going.pop()
    return []
