# SPDX-License-Identifier: Apache-2.0
"""A commit's parts: what must hold of the head, what the new snapshot says of itself, the commit ready to be sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeward.model import Bucket, ExpiringSnapshot, LakeBase, OffsetSet, RoundId, SnapshotId, TableId
from lakeward.protocol.heartbeat import LeasedCommit


@dataclass(frozen=True, kw_only=True)
class Precondition:
    """Conditions on the head under which a commit may land (design.md 6.5), the same for every format. `starts`: the
    offset from which the round started, per bucket; None where the bucket was never tiered. Only a compaction sets
    `fence`: it re-bases over rounds and only a fence stops it, so the token is not compared then."""

    table_id: TableId
    token: str | None
    starts: Mapping[Bucket, int | None] = field(default_factory=dict)
    fence: int | None = None

    @classmethod
    def on(cls, table_id: TableId, base: LakeBase) -> Precondition:
        """Requires that no Lakeward commit landed since `base` was read."""
        return cls(table_id=table_id, token=base.token, starts=dict(base.offsets))

    def breach(self, base: LakeBase, table_id: TableId | None = None) -> str | None:
        """Returns the condition that the base breaks, as text; None: the commit may land on it. A commit whose
        precondition is broken is lost: it never lands, on this head or a later one. `table_id`: the table that owns the
        lake table."""
        if table_id is not None and table_id != self.table_id:
            return f"the commit is for table id {self.table_id}, the lake table holds {table_id}"
        if self.fence is not None and base.fence != self.fence:
            return f"the fence is {base.fence}, {self.fence} was planned on"
        if self.fence is None and base.token != self.token:
            return f"the newest round is {base.token}, this one was planned on {self.token}"
        for bucket, start in self.starts.items():
            if base.offsets.get(bucket) != start:
                at = base.offsets.get(bucket)
                return f"bucket {bucket} is at offset {at} in the lake, the round started at {start}"
        return None


@dataclass(frozen=True, kw_only=True)
class CommitProperties:
    """Properties that the new snapshot records. `offsets` are the round's own; the committer overlays them on the
    head's map. `is_resyncing`: some buckets of the new generation have not been compared by any round of the resync
    yet."""

    round_id: RoundId
    epoch: int
    job: str
    offsets: Mapping[Bucket, int]
    generation: int = 0
    is_resyncing: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def fence(cls, base: LakeBase, round_id: RoundId, epoch: int) -> CommitProperties:
        """Properties of a commit that moves no rows and stops every writer that planned before it."""
        return cls(round_id=round_id, epoch=epoch, job="fence", offsets={}, generation=base.generation)

    @classmethod
    def rewrite(cls, base: LakeBase, extra: Mapping[str, str] | None = None) -> CommitProperties:
        """Properties of a commit that changes files but no rows: it repeats those of the newest round, which still
        hold."""
        return cls(
            round_id=RoundId(base.token or ""),
            epoch=int(base.epoch),
            job="rewrite",
            offsets={},
            generation=base.generation,
            extra=extra or {},
        )

    def leaves_resync(self, base: LakeBase) -> bool:
        """Is a resync under way after this commit? Commits of the same generation leave it as it is."""
        return self.is_resyncing or (base.is_resyncing and self.generation <= base.generation)

    def breach(self, base: LakeBase) -> str | None:
        """Offsets may go back only in a new generation: returns the ones that would go back, as text."""
        if self.generation > base.generation:
            return None
        for bucket, offset in self.offsets.items():
            if offset < base.offsets.get(bucket, 0):
                return f"bucket {bucket} would go back from offset {base.offsets[bucket]} to {offset}"
        return None


@dataclass(frozen=True, kw_only=True)
class Renewal:
    """Result of a round that compared buckets with a lake snapshot, row by row. `offsets`: per compared bucket, the
    offsets whose rows leave the head because the round's own files hold them again: they were altered or duplicated."""

    head: SnapshotId
    offsets: Mapping[Bucket, OffsetSet]


@dataclass(frozen=True, kw_only=True)
class Committable:
    """One commit, ready to be sent again and again unchanged: versioned bytes that only its plugin reads.

    `base` is the head it was prepared on; the commit demands exactly that head. `expirable` are the snapshots that the
    table's retention lets go with it; `expire`, set once those are marked where read leases are kept, are taken out by
    the same commit. `retries` and `retry_s`: how often, and for how long, the table itself lets a commit be prepared
    again because others came between.
    """

    base: LakeBase
    payload: bytes
    rows: int = 0
    deletes: int = 0
    files: int = 0
    bytes_written: int = 0
    expirable: tuple[ExpiringSnapshot, ...] = ()
    expire: tuple[SnapshotId, ...] = ()
    retries: int | None = None
    retry_s: float | None = None
    leased: LeasedCommit | None = None
    """Set where the catalog is the coordinator's own (`LakeCommitter.coordinator_id`): `expire` is then the catalog's
    to set."""
