# SPDX-License-Identifier: Apache-2.0
"""A Paimon table's snapshots, as the commit protocol uses them: manifests first, then one snapshot file, created
exclusively, or passed to a catalog that accepts commits.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pypaimon.api.rest_exception import RESTException
from pypaimon.catalog.catalog_exception import TableNotExistException

from lakeward.errors import FaultInjected, LakeTableGone, LakeUnavailable
from lakeward.lake.core.change import ChangeKind
from lakeward.lake.core.history import HistoryLimit, LogSnapshot, OwnCommit, OwnHistory, new_history
from lakeward.lake.core.log import HeadMoved, SnapshotLog
from lakeward.lake.paimon.changes import PaimonChange, PaimonGround
from lakeward.lake.paimon.evolve import at_schema
from lakeward.lake.paimon.meta.connection import PaimonConnection, lake_errors
from lakeward.lake.paimon.meta.history import PaimonHistory, PaimonSnapshot, snapshot_path, tag_path
from lakeward.lake.paimon.newsnapshot import NewSnapshot, create, describe, hand_over, mark, put_tag
from lakeward.lake.paimon.writer import VERSION
from lakeward.model import (
    ExpiringSnapshot,
    LakeBase,
    OffsetMap,
    RoundId,
    SnapshotId,
    TableInfo,
    fault_point,
    pack,
    unpack,
)
from lakeward.spi import OFFSETS_KEY, OWN_OFFSETS_KEY, TABLE_ID_KEY, CommitProperties, encode_fluss_offsets

PAYLOAD_KIND = "paimon-committable"


@dataclass(frozen=True)
class PaimonRequest:
    """A request. `base`: the head that it was built on. `managed`: for a table whose catalog accepts commits."""

    round_id: RoundId
    snapshot: PaimonSnapshot
    base: PaimonSnapshot | None
    managed: Mapping[str, Any] | None

    @property
    def keys(self) -> Mapping[str, str]:
        return self.snapshot.properties


class PaimonSnapshotLog(SnapshotLog[PaimonGround, PaimonChange, PaimonRequest]):
    lake, ground_type = "paimon", PaimonGround

    def __init__(self, connection: PaimonConnection, info: TableInfo) -> None:
        self._connection, self._info, self.table = connection, info, str(info.path)
        self._reading: PaimonHistory | None = None

    def load(self) -> PaimonGround:
        lake_table = at_schema(self._connection.load(self._info.path), self._info.schema)
        history = self._reading = PaimonHistory.of(lake_table, self._info)
        return PaimonGround(lake_table, history)

    def newest_first(self, ground: PaimonGround, *, with_expired: bool = False) -> Iterator[LogSnapshot]:
        return map(_log_snapshot, reversed(ground.history.retained()))

    def oldest_first(self, ground: PaimonGround) -> Iterator[LogSnapshot]:
        snapshots = (ground.history.find(n) for n in ground.history.numbers)
        return (_log_snapshot(s) for s in snapshots if s is not None)

    def count(self, ground: PaimonGround) -> int:
        return len(ground.history.numbers)

    def get(self, ground: PaimonGround, snapshot_id: SnapshotId) -> LogSnapshot:
        return _log_snapshot(ground.history.get(snapshot_id))

    def has(self, ground: PaimonGround, snapshot_id: SnapshotId) -> bool:
        return int(snapshot_id) in ground.history.numbers

    def is_retained(self, ground: PaimonGround, snapshot_id: SnapshotId) -> bool:
        return self.has(ground, snapshot_id)

    def own_history(self, ground: PaimonGround) -> OwnHistory:
        history = ground.history
        newest, marked = history.newest_ours(), history.mark
        is_rolled_back = marked is not None and not history.is_behind(marked)
        return OwnHistory(
            newest=_own(marked if is_rolled_back else newest),
            stands_on=_own(newest),
            is_rolled_back=is_rolled_back,
            counted=tuple(s.properties for s in (newest, marked) if s is not None),
        )

    def own_at(self, ground: PaimonGround, snapshot_id: SnapshotId) -> OwnCommit | None:
        snapshot = ground.history.get(snapshot_id)
        return _own(snapshot if snapshot.is_ours else ground.history.newest_ours(snapshot.number))

    def offsets(self, commit: OwnCommit) -> OffsetMap:
        """Reads offsets. Those of a Fluss job are in a separate file, by the partitions in any history of the table."""
        return (self._reading or self.load().history).offsets(commit.snapshot_id, commit.keys)

    def offsets_of(self, snapshot: LogSnapshot) -> OffsetMap | None:
        """Returns only the offsets in the snapshot itself: the file of a Fluss job's offsets may not exist any more."""
        return super().offsets_of(snapshot) if TABLE_ID_KEY in snapshot.keys else None

    def own_keys(
        self, ground: PaimonGround, base: LakeBase, properties: CommitProperties, change: PaimonChange
    ) -> Mapping[str, str]:
        """Returns the keys of a table of a Fluss cluster: offsets are where Fluss wrote them for this commit; a commit
        that moves nothing copies the last place. Fluss deletes that file after the next commit, so the snapshot has the
        offsets too."""
        history = ground.history
        if history.partitions is None:
            return {}
        offsets, newest = base.offsets.overlaid(properties.offsets), history.newest_ours()
        own_offsets = json.dumps(encode_fluss_offsets(self._info.table_id, offsets, history.partitions))
        last = {} if newest is None else {OFFSETS_KEY: newest.properties.get(OFFSETS_KEY, "")}
        return {OWN_OFFSETS_KEY: own_offsets, OFFSETS_KEY: "", **last, **properties.extra}

    def encode(self, ground: PaimonGround, round_id: RoundId, keys: Mapping[str, str], change: PaimonChange) -> bytes:
        """Writes the manifests."""
        head, manifests = ground.history.head, ground.manifests
        is_counted = not self._info.is_pk and change.kind is not ChangeKind.REWRITE
        with lake_errors(self.table, "prepare a commit of"):
            new = NewSnapshot(manifests, head, round_id)
            body = new.build(change.manifest_change, dict(keys), count_rows=is_counted)
            managed = describe(manifests.table, change.manifest_change.entries) if ground.is_managed else None
        base = None if head is None else head.body
        return pack(PAYLOAD_KIND, VERSION, {"round": round_id, "base": base, "snapshot": body, "managed": managed})

    def parse(self, payload: bytes) -> PaimonRequest:
        _, body, _ = unpack(PAYLOAD_KIND, VERSION, payload)
        base = None if body["base"] is None else PaimonSnapshot(body["base"])
        return PaimonRequest(RoundId(body["round"]), PaimonSnapshot(body["snapshot"]), base, body.get("managed"))

    def append(self, request: PaimonRequest, base: LakeBase, expire: Collection[SnapshotId]) -> LogSnapshot:
        ground, new = self.load(), PaimonSnapshot({**request.snapshot.body, "timeMillis": self.now_ms()})
        if not _is_head(ground.history, request.base):
            raise HeadMoved("the head moved since the base was read")
        try:
            landed = self._land(ground, request, new)
        except TableNotExistException as error:
            raise LakeTableGone(table=self.table) from error
        except FaultInjected:
            raise
        except (RuntimeError, RESTException) as error:
            raise LakeUnavailable(lake=self.lake, what=f"commit to {self.table}", reason=str(error)) from error
        if not landed:
            raise HeadMoved(f"snapshot {new.number} exists")
        for number in {int(s) for s in expire} - {new.number}:
            with suppress(OSError):  # upkeep's own expiry deletes the rest
                ground.history.files.delete(snapshot_path(ground.history.folder, number))
        return _log_snapshot(new)

    def _land(self, ground: PaimonGround, request: PaimonRequest, new: PaimonSnapshot) -> bool:
        files, folder = ground.history.files, ground.history.folder
        if request.managed is None:
            return create(files, folder, new)
        landed = hand_over(ground.lake_table, request.base, new, request.managed)
        there = None if landed else self.load().history.find(new.number)
        if not landed and (there is None or not there.is_same(new)):
            return False
        mark(files, folder, new)
        return True

    def limit(self, ground: PaimonGround) -> HistoryLimit:
        options = {**new_history(prefix=""), **ground.manifests.table.table_schema.options}
        return HistoryLimit.of(options, prefix="")

    def protected(self, ground: PaimonGround) -> set[SnapshotId]:
        """Protects the head, our newest snapshot and those between, which reconcile reads."""
        history = ground.history
        newest, marked = history.newest_ours(), [] if history.mark is None else [history.mark.number]
        first = history.numbers[-1] if history.numbers else 0
        first = min(first, newest.number) if newest is not None else first
        return {SnapshotId(str(n)) for n in (*marked, *(n for n in history.numbers if n >= first))}

    def expiring(self, ground: PaimonGround, snapshot_id: SnapshotId) -> ExpiringSnapshot:
        lists = ground.history.get(snapshot_id).lists
        return ExpiringSnapshot(snapshot_id=snapshot_id, trace=json.dumps(list(lists)))

    def forget(self, ground: PaimonGround, snapshots: Collection[SnapshotId]) -> bool:
        history, numbers = ground.history, sorted(map(int, snapshots))
        for number in numbers:
            with lake_errors(self.table, "expire snapshots of"):
                history.files.delete(snapshot_path(history.folder, number))
        fault_point("lake.expired-metadata", snapshots=[str(n) for n in numbers])
        return True

    def references(self, ground: PaimonGround) -> set[str]:
        """Returns the files of every snapshot and tag. Raises if one cannot be read: no file may be deleted then."""
        history = ground.history
        lists = {name for snapshot in [*history.newest_first(), *history.tags()] for name in snapshot.lists}
        with lake_errors(self.table, "read manifests of"):
            return ground.manifests.reach(lists).all

    def only_in(self, ground: PaimonGround, expired: Sequence[ExpiringSnapshot]) -> list[str]:
        lists = {name for s in expired for name in json.loads(s.trace or "[]")}
        with lake_errors(self.table, "expire snapshots of"):
            traced = ground.manifests.reach(lists, is_gone_ok=True)
            return traced.deletion_order(self.references(ground)) if lists else []

    def tag(self, name: str, snapshot_id: SnapshotId) -> None:
        history = self.load().history
        with lake_errors(self.table, "tag a snapshot of"):
            put_tag(history.files, history.folder, name, history.get(snapshot_id))

    def untag(self, name: str) -> None:
        """Returns files that only the snapshot had; if another engine expired it meanwhile, they are left to orphan
        removal."""
        history = self.load().history
        with lake_errors(self.table, "take a tag off"):
            history.files.delete(tag_path(history.folder, name))


def _own(snapshot: PaimonSnapshot | None) -> OwnCommit | None:
    """Describes a snapshot, with the table id in the path of a Fluss job's offsets."""
    if snapshot is None:
        return None
    owner = {} if snapshot.owner is None else {TABLE_ID_KEY: snapshot.owner}
    return OwnCommit(snapshot.id, {**snapshot.properties, **owner})


def _is_head(history: PaimonHistory, base: PaimonSnapshot | None) -> bool:
    if base is None or history.head is None:
        return base is None and history.head is None
    return history.head.is_same(base)


def _log_snapshot(snapshot: PaimonSnapshot) -> LogSnapshot:
    keys = snapshot.summary
    return LogSnapshot(
        snapshot_id=snapshot.id,
        parent_id=SnapshotId(str(snapshot.number - 1)) if snapshot.number > 1 else None,
        committed_at_ms=int(snapshot.body["timeMillis"]),
        operation=snapshot.operation,
        sequence=snapshot.number,
        keys=keys if snapshot.is_ours else {},
        facts=keys,
    )
