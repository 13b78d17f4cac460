# SPDX-License-Identifier: Apache-2.0
"""A memory table's snapshots: main's chain, the tag on our newest snapshot, snapshots that a rollback left."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakeward.lake.core.change import ChangeKind, RowFileChange
from lakeward.lake.core.history import HistoryLimit, LogSnapshot, OwnCommit, OwnHistory
from lakeward.lake.core.log import HeadMoved, SnapshotLog
from lakeward.lake.memory.rows import LiveFile, high_marks
from lakeward.lake.memory.table import MemoryLake, MemoryTable, Refs, Snapshot
from lakeward.model import ExpiringSnapshot, LakeBase, RoundId, SnapshotId, TablePath, fault_point, pack, unpack
from lakeward.spi import OFFSETS_KEY

PAYLOAD_KIND, VERSION = "memory-committable", 1


@dataclass(frozen=True)
class MemoryGround:
    table: MemoryTable
    snapshots: Mapping[int, Snapshot]
    refs: Refs

    @property
    def head(self) -> Snapshot | None:
        return None if self.refs.head is None else self.snapshots[self.refs.head]

    @property
    def head_id(self) -> SnapshotId | None:
        return None if self.head is None else self.head.id

    def chain(self, number: int | None) -> list[Snapshot]:
        """Returns a snapshot and its retained ancestors, newest first."""
        chain = []
        while number is not None and number in self.snapshots:
            chain.append(self.snapshots[number])
            number = self.snapshots[number].parent
        return chain


@dataclass(frozen=True)
class MemoryRequest:
    round_id: RoundId
    keys: Mapping[str, str]
    operation: str
    refs: Refs
    add: frozenset[str]
    drop: frozenset[str]
    sequences: Mapping[str, int]


class MemorySnapshotLog(SnapshotLog[MemoryGround, RowFileChange[LiveFile], MemoryRequest]):
    lake, ground_type = "memory", MemoryGround

    def __init__(self, lake: MemoryLake, path: TablePath) -> None:
        self._lake, self._path, self.table = lake, path, str(path)

    def now_ms(self) -> int:
        return self._lake.clock.now_ms()

    def load(self) -> MemoryGround:
        with self._lake.lock:
            table = self._lake.table(self._path)
            return MemoryGround(table, dict(table.snapshots), table.refs)

    def newest_first(self, ground: MemoryGround, *, with_expired: bool = False) -> Iterator[LogSnapshot]:
        chain = ground.chain(ground.refs.head)
        others = sorted(set(ground.snapshots) - {s.number for s in chain}, reverse=True)
        return map(_log_snapshot, [*chain, *(ground.snapshots[n] for n in others)])

    def own_history(self, ground: MemoryGround) -> OwnHistory:
        chain, tag = ground.chain(ground.refs.head), ground.refs.tag
        newest = next((s for s in chain if OFFSETS_KEY in s.summary), None)
        is_rolled_back, tagged = False, None if tag is None else ground.snapshots[tag]
        if tagged is not None and tagged not in chain:
            is_rolled_back = not _stands_for(ground, chain, tagged)
            newest = newest if is_rolled_back else newest or tagged
        return OwnHistory(
            newest=_own(tagged if is_rolled_back else newest),
            stands_on=_own(newest),
            is_rolled_back=is_rolled_back,
            counted=tuple(s.summary for s in ground.snapshots.values()),
        )

    def own_at(self, ground: MemoryGround, snapshot_id: SnapshotId) -> OwnCommit | None:
        return _own(next((s for s in ground.chain(int(snapshot_id)) if OFFSETS_KEY in s.summary), None))

    def encode(
        self, ground: MemoryGround, round_id: RoundId, keys: Mapping[str, str], change: RowFileChange[LiveFile]
    ) -> bytes:
        is_rewrite = change.kind in (ChangeKind.REWRITE, ChangeKind.DROP)
        deletes = [d.path for f in change.added for _, d in f.deletes]
        deletes += [d.path for old, new in change.changed for _, d in new.deletes[len(old.deletes) :]]
        body = {
            "refs": [ground.refs.uuid, ground.refs.head, ground.refs.tag],
            "round": round_id,
            "keys": dict(keys),
            "operation": change.kind,
            "add": [*(f.file.path for f in change.added), *change.beside, *deletes],
            "drop": [f.file.path for f in change.removed],
            "sequences": {f.file.path: f.sequence for f in change.added} if is_rewrite else {},
        }
        return pack(PAYLOAD_KIND, VERSION, body)

    def parse(self, payload: bytes) -> MemoryRequest:
        _, body, _ = unpack(PAYLOAD_KIND, VERSION, payload)
        uuid, head, tag = body["refs"]
        return MemoryRequest(
            round_id=RoundId(body["round"]),
            keys=body["keys"],
            operation=body["operation"],
            refs=Refs(uuid=uuid, head=head, tag=tag),
            add=frozenset(body["add"]),
            drop=frozenset(body["drop"]),
            sequences=body["sequences"],
        )

    def append(self, request: MemoryRequest, base: LakeBase, expire: Collection[SnapshotId]) -> LogSnapshot:
        with self._lake.lock:
            table = self._lake.table(self._path)
            landed = self._lake.commit(
                table,
                request.refs,
                operation=request.operation,
                summary=request.keys,
                add=request.add,
                drop=request.drop,
                sequences=request.sequences,
            )
            if landed is None:
                raise HeadMoved("main or the tag moved since the base was read")
            for number in {int(s) for s in expire} - {table.head, table.tag}:
                table.snapshots.pop(number, None)
            return _log_snapshot(landed)

    def limit(self, ground: MemoryGround) -> HistoryLimit:
        return HistoryLimit.of(ground.table.properties)

    def protected(self, ground: MemoryGround) -> set[SnapshotId]:
        """Protects foreign commits since our newest one too: without them the table would look rolled back."""
        head, tag = ground.refs.head, ground.refs.tag
        return {s.id for n, s in ground.snapshots.items() if n in (head, tag) or (tag is not None and n > tag)}

    def expiring(self, ground: MemoryGround, snapshot_id: SnapshotId) -> ExpiringSnapshot:
        trace = json.dumps(sorted(ground.snapshots[int(snapshot_id)].paths))
        return ExpiringSnapshot(snapshot_id=snapshot_id, trace=trace)

    def forget(self, ground: MemoryGround, snapshots: Collection[SnapshotId]) -> bool:
        with self._lake.lock:
            for number in {int(s) for s in snapshots} - {ground.table.head, ground.table.tag}:
                ground.table.snapshots.pop(number, None)
        fault_point("lake.expired-metadata", snapshots=list(snapshots))
        return True

    def references(self, ground: MemoryGround) -> set[str]:
        return {path for s in ground.snapshots.values() for path in s.paths}

    def only_in(self, ground: MemoryGround, expired: Sequence[ExpiringSnapshot]) -> list[str]:
        once = {path for s in expired for path in json.loads(s.trace or "[]")}
        return sorted(once - self.references(ground))


def _log_snapshot(snapshot: Snapshot) -> LogSnapshot:
    return LogSnapshot(
        snapshot_id=snapshot.id,
        parent_id=None if snapshot.parent is None else SnapshotId(str(snapshot.parent)),
        committed_at_ms=snapshot.committed_at_ms,
        operation=snapshot.operation,
        sequence=snapshot.number,
        keys=snapshot.summary if OFFSETS_KEY in snapshot.summary else {},
        removes_rows=snapshot.operation == "delete",
    )


def _own(snapshot: Snapshot | None) -> OwnCommit | None:
    return None if snapshot is None else OwnCommit(snapshot.id, snapshot.summary)


def _stands_for(ground: MemoryGround, chain: Sequence[Snapshot], tagged: Snapshot) -> bool:
    """Whether main still contains our tagged snapshot. Expiry may have removed the snapshots between main and the tag;
    the same rows then show that no one rolled back."""
    if not chain or chain[-1].parent is None or chain[0].number <= tagged.number:
        return False
    return high_marks(ground.table, chain[0]) == high_marks(ground.table, tagged)
