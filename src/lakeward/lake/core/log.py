# SPDX-License-Identifier: Apache-2.0
"""What a format's log of snapshots does for the commit protocol: load the table, append one snapshot on an exact head,
look back, let old snapshots go.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Generic, Protocol, TypeVar

from lakeward.errors import LakeUnavailable, SnapshotGone
from lakeward.lake.core.change import CommitChange
from lakeward.lake.core.history import HistoryLimit, LogSnapshot, OwnCommit, OwnHistory
from lakeward.model import ExpiringSnapshot, LakeBase, OffsetMap, RoundId, SnapshotId, pack, unpack
from lakeward.protocol.heartbeat import LeasedAnswer, LeasedCommit
from lakeward.spi import CommitProperties, decode_offsets


class TableGround(Protocol):
    """A table as it was loaded once, immutable: what a commit is built on."""

    @property
    def head_id(self) -> SnapshotId | None:
        """The newest snapshot, ours or foreign. None: no snapshot yet."""


class Request(Protocol):
    """A commit as it is sent. `keys`: what the new snapshot says of itself."""

    @property
    def round_id(self) -> RoundId: ...

    @property
    def keys(self) -> Mapping[str, str]: ...


class HeadMoved(Exception):
    """Raised by `SnapshotLog.append`: the head is not the one that the request was built on. Nothing was written."""


class CommitRefused(Exception):
    """Raised by `SnapshotLog.append`: the lake answered that it did not commit. Without it, an error counts as an
    unknown outcome."""

    def __init__(self, error: LakeUnavailable) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True)
class VersionRequest:
    """The request of a log whose versions are counted. `head`: the version it was built on. `expired`: versions that
    earlier commits took out. `change`: the format's own, as JSON."""

    head: int
    round_id: RoundId
    keys: Mapping[str, str]
    expired: frozenset[int]
    change: Mapping[str, Any]

    def to_bytes(self, kind: str, version: int = 1) -> bytes:
        own = {"head": self.head, "round": self.round_id, "keys": dict(self.keys), "expired": sorted(self.expired)}
        return pack(kind, version, {**self.change, **own})

    @classmethod
    def from_bytes(cls, kind: str, payload: bytes, version: int = 1) -> VersionRequest:
        _, body, _ = unpack(kind, version, payload)
        own = (body.pop("head"), RoundId(body.pop("round")), body.pop("keys"), frozenset(body.pop("expired")))
        return cls(*own, body)

    def expired_with(self, more: Collection[SnapshotId], head_id: SnapshotId | None) -> list[int]:
        """With those that go with this commit; the version and the snapshot that it stands on stay."""
        kept = {self.head, *(int(v) for v in (head_id,) if v)}
        return sorted({*self.expired, *map(int, more)} - kept)


G = TypeVar("G", bound=TableGround)
C = TypeVar("C", bound=CommitChange)
R = TypeVar("R", bound=Request)


class SnapshotHistory(ABC, Generic[G]):
    """One table's snapshots, as they are looked back on. All calls may block on storage and raise `LakeUnavailable`;
    none keeps state between calls but caches. `G`: the loaded table."""

    lake: str
    """The format's name, for messages."""

    table: str
    """The table's path, for messages."""

    ground_type: type[G]

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    @abstractmethod
    def load(self) -> G:
        """The table as it is now. Raises `LakeTableGone`, `LakeSchemaBroken`."""

    def is_current(self, ground: G) -> bool:
        """Is this cheap to say, and the table still as it was loaded? False loads it again."""
        return False

    @abstractmethod
    def newest_first(self, ground: G, *, with_expired: bool = False) -> Iterator[LogSnapshot]:
        """Snapshots, lazily: the head and its ancestors first, then any that a rollback left behind. `with_expired`:
        also those that were let go and can still be read."""

    def get(self, ground: G, snapshot_id: SnapshotId) -> LogSnapshot:
        """Raises `SnapshotGone`, for an expired one as well."""
        snapshot = next((s for s in self.newest_first(ground) if s.snapshot_id == snapshot_id), None)
        if snapshot is None:
            raise self.gone(snapshot_id)
        return snapshot

    def has(self, ground: G, snapshot_id: SnapshotId) -> bool:
        """Can it still be read, expired or not?"""
        return any(s.snapshot_id == snapshot_id for s in self.newest_first(ground, with_expired=True))

    def oldest_first(self, ground: G) -> Iterator[LogSnapshot]:
        """Those that expiry may let go, and the head; lazily where that spares reads."""
        return iter(list(self.newest_first(ground))[::-1])

    def count(self, ground: G) -> int:
        """Of `oldest_first`."""
        return sum(1 for _ in self.newest_first(ground))

    def superseded(self, ground: G, kept: int) -> Iterator[tuple[SnapshotId, int]]:
        """Snapshots that expiry may let go, with the time at which the next one took their place, oldest first. `kept`:
        so many of the newest stay."""
        spare = max(0, self.count(ground) - kept)
        pairs = islice(pairwise(self.oldest_first(ground)), spare)
        return ((snapshot.snapshot_id, follower.committed_at_ms) for snapshot, follower in pairs)

    def is_retained(self, ground: G, snapshot_id: SnapshotId) -> bool:
        """Is it still part of the table?"""
        try:
            self.get(ground, snapshot_id)
        except SnapshotGone:
            return False
        return True

    def gone(self, snapshot_id: SnapshotId | int) -> SnapshotGone:
        return SnapshotGone(table=self.table, snapshot=str(snapshot_id), advice="read again from the newest one")

    @abstractmethod
    def own_history(self, ground: G) -> OwnHistory:
        """Our commits as seen from the head, and whether somebody moved the table back behind them."""

    @abstractmethod
    def own_at(self, ground: G, snapshot_id: SnapshotId) -> OwnCommit | None:
        """Our newest commit among a snapshot and its ancestors."""

    def offsets(self, commit: OwnCommit) -> OffsetMap:
        """Raises `LakeTampered`."""
        return decode_offsets(commit.keys, self.table, commit.snapshot_id)

    def offsets_of(self, snapshot: LogSnapshot) -> OffsetMap | None:
        """What a snapshot says itself."""
        return self.offsets(OwnCommit(snapshot.snapshot_id, snapshot.keys)) if snapshot.keys else None


class SnapshotLog(SnapshotHistory[G], Generic[G, C, R]):
    """One table's log, as commits and expiry change it. `C`: what a commit changes, `R`: a commit as it is sent."""

    def own_keys(self, ground: G, base: LakeBase, properties: CommitProperties, change: C) -> Mapping[str, str | None]:
        """Keys that this format's snapshots have besides those of every format, or in their place. None leaves a key
        out."""
        return {}

    def retries(self, ground: G) -> tuple[int | None, float | None]:
        """How often, and for how many seconds, the table itself lets a commit be prepared again."""
        return None, None

    @abstractmethod
    def encode(self, ground: G, round_id: RoundId, keys: Mapping[str, str], change: C) -> bytes:
        """The commit of this change on this ground, as versioned bytes. Writes whatever the request refers to, such as
        manifests."""

    @abstractmethod
    def parse(self, payload: bytes) -> R:
        """What `encode` made, by this version or an older one."""

    @abstractmethod
    def append(self, request: R, base: LakeBase, expire: Collection[SnapshotId]) -> LogSnapshot:
        """Compare and swap: makes the snapshot on exactly the head that the request was built on; those to expire leave
        the table with it. Sent again unchanged it takes effect at most once. Raises `HeadMoved`,
        `CommitRefused`; `LakeUnavailable` or `OSError` when no answer came; `LakeTableGone`."""

    @property
    def coordinator_id(self) -> str | None:
        """As `LakeCommitter.coordinator_id`."""
        return None

    def append_leased(
        self, request: R, base: LakeBase, leased: LeasedCommit
    ) -> tuple[LogSnapshot, LeasedAnswer | None]:
        """As `append`, by a catalog that checks the lease and takes the report. Raises `LeaseLost` too."""
        raise NotImplementedError(f"{self.lake} has no catalog of a coordinator's")

    def settle(self, request: R) -> None:
        """After `append`: what a crash may leave out, such as a checkpoint. Never fails the commit."""
        return

    @abstractmethod
    def limit(self, ground: G) -> HistoryLimit:
        """The table's `history.expire.*` properties."""

    @abstractmethod
    def protected(self, ground: G) -> set[SnapshotId]:
        """Snapshots that stay whatever is asked: the head, our newest, those that a tag or a branch names."""

    def expiring(self, ground: G, snapshot_id: SnapshotId) -> ExpiringSnapshot:
        """With what finds its files once the table has forgotten it."""
        return ExpiringSnapshot(snapshot_id=snapshot_id)

    @abstractmethod
    def forget(self, ground: G, snapshots: Collection[SnapshotId]) -> bool:
        """Takes snapshots out of the table by a commit of its own on this ground; true where they are out already.
        False: the head moved."""

    @abstractmethod
    def references(self, ground: G) -> set[str]:
        """Every file that a retained snapshot, tag or branch has."""

    @abstractmethod
    def only_in(self, ground: G, expired: Sequence[ExpiringSnapshot]) -> list[str]:
        """Files that only these snapshots had, which the table no longer has, in the order to delete them."""

    def clean(self, ground: G, expired: Sequence[ExpiringSnapshot]) -> Sequence[str]:
        """After `only_in` was deleted: removes the log's own leftovers, or returns their paths. Safe to repeat."""
        return ()


def plan_expiry(
    log: SnapshotLog[G, Any, Any], ground: G, now_ms: int, coming: int = 0, most: int | None = None
) -> list[ExpiringSnapshot]:
    """Beyond age and number, oldest first; looks at no more snapshots than it needs. `coming`: those that a commit
    adds. `most`: so many at most."""
    limit, old = log.limit(ground), list[SnapshotId]()
    for snapshot_id, superseded_at_ms in log.superseded(ground, max(1, limit.min_kept - coming)):
        if superseded_at_ms >= now_ms - limit.max_age_ms:
            break
        old.append(snapshot_id)
    retained = log.protected(ground) if old else ()
    return [log.expiring(ground, s) for s in [s for s in old if s not in retained][:most]]
