# SPDX-License-Identifier: Apache-2.0
"""The snapshot log of a format, as the commit protocol uses it: load the table, append a snapshot on an exact head,
read the history, expire old snapshots.
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
    """A table as loaded once, immutable. Commits are built on it."""

    @property
    def head_id(self) -> SnapshotId | None:
        """The newest snapshot, ours or foreign. None: no snapshot yet."""


class Request(Protocol):
    """A commit as it is sent. `keys`: metadata of the new snapshot."""

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
    """The request of a log with numbered versions. `head`: the version it was built on. `expired`: versions that
    earlier commits removed. `change`: the format's own data, as JSON."""

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
        """Expired versions after this commit; the new version and the snapshot it is based on stay."""
        kept = {self.head, *(int(v) for v in (head_id,) if v)}
        return sorted({*self.expired, *map(int, more)} - kept)


G = TypeVar("G", bound=TableGround)
C = TypeVar("C", bound=CommitChange)
R = TypeVar("R", bound=Request)


class SnapshotHistory(ABC, Generic[G]):
    """Reads the snapshots of one table. All calls may block on storage and raise `LakeUnavailable`; none keeps state
    between calls except caches. `G`: the loaded table."""

    lake: str
    """The format's name, for messages."""

    table: str
    """The table's path, for messages."""

    ground_type: type[G]

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    @abstractmethod
    def load(self) -> G:
        """Loads the table. Raises `LakeTableGone`, `LakeSchemaBroken`."""

    def is_current(self, ground: G) -> bool:
        """Whether the table is still as it was loaded, if that is cheap to check. False loads it again."""
        return False

    @abstractmethod
    def newest_first(self, ground: G, *, with_expired: bool = False) -> Iterator[LogSnapshot]:
        """Returns snapshots, lazily: the head and its ancestors first, then any that a rollback left behind.
        `with_expired`: also expired snapshots that can still be read."""

    def get(self, ground: G, snapshot_id: SnapshotId) -> LogSnapshot:
        """Raises `SnapshotGone`, for an expired snapshot as well."""
        snapshot = next((s for s in self.newest_first(ground) if s.snapshot_id == snapshot_id), None)
        if snapshot is None:
            raise self.gone(snapshot_id)
        return snapshot

    def has(self, ground: G, snapshot_id: SnapshotId) -> bool:
        """Whether the snapshot can still be read, expired or not."""
        return any(s.snapshot_id == snapshot_id for s in self.newest_first(ground, with_expired=True))

    def oldest_first(self, ground: G) -> Iterator[LogSnapshot]:
        """Returns the snapshots that may expire, and the head; lazily if that saves reads."""
        return iter(list(self.newest_first(ground))[::-1])

    def count(self, ground: G) -> int:
        """Counts the snapshots of `oldest_first`."""
        return sum(1 for _ in self.newest_first(ground))

    def superseded(self, ground: G, kept: int) -> Iterator[tuple[SnapshotId, int]]:
        """Returns the snapshots that may expire, oldest first, with the time at which the next one replaced them.
        `kept`: this many of the newest stay."""
        spare = max(0, self.count(ground) - kept)
        pairs = islice(pairwise(self.oldest_first(ground)), spare)
        return ((snapshot.snapshot_id, follower.committed_at_ms) for snapshot, follower in pairs)

    def is_retained(self, ground: G, snapshot_id: SnapshotId) -> bool:
        """Whether the snapshot is still part of the table."""
        try:
            self.get(ground, snapshot_id)
        except SnapshotGone:
            return False
        return True

    def gone(self, snapshot_id: SnapshotId | int) -> SnapshotGone:
        return SnapshotGone(table=self.table, snapshot=str(snapshot_id), advice="read again from the newest one")

    @abstractmethod
    def own_history(self, ground: G) -> OwnHistory:
        """Finds our commits as seen from the head, and whether someone rolled the table back behind them."""

    @abstractmethod
    def own_at(self, ground: G, snapshot_id: SnapshotId) -> OwnCommit | None:
        """Finds our newest commit among a snapshot and its ancestors."""

    def offsets(self, commit: OwnCommit) -> OffsetMap:
        """Raises `LakeTampered`."""
        return decode_offsets(commit.keys, self.table, commit.snapshot_id)

    def offsets_of(self, snapshot: LogSnapshot) -> OffsetMap | None:
        """Returns the offsets that a snapshot itself records."""
        return self.offsets(OwnCommit(snapshot.snapshot_id, snapshot.keys)) if snapshot.keys else None


class SnapshotLog(SnapshotHistory[G], Generic[G, C, R]):
    """The log of one table, as commits and expiry change it. `C`: changes of a commit, `R`: a commit as it is sent."""

    def own_keys(self, ground: G, base: LakeBase, properties: CommitProperties, change: C) -> Mapping[str, str | None]:
        """Returns keys that this format's snapshots have in addition to the common ones, or in their place. None omits
        a key."""
        return {}

    def retries(self, ground: G) -> tuple[int | None, float | None]:
        """Returns how often, and for how many seconds, the table's own settings allow a commit to be prepared again."""
        return None, None

    @abstractmethod
    def encode(self, ground: G, round_id: RoundId, keys: Mapping[str, str], change: C) -> bytes:
        """Encodes the commit of this change on this ground as versioned bytes. Writes the files that the request refers
        to, such as manifests."""

    @abstractmethod
    def parse(self, payload: bytes) -> R:
        """Parses the bytes of `encode`, written by this version or an older one."""

    @abstractmethod
    def append(self, request: R, base: LakeBase, expire: Collection[SnapshotId]) -> LogSnapshot:
        """Compare and swap: creates the snapshot on exactly the head that the request was built on, and removes the
        snapshots in `expire` in the same step. Sent again unchanged it takes effect at most once. Raises `HeadMoved`,
        `CommitRefused`; `LakeUnavailable` or `OSError` when no answer came; `LakeTableGone`."""

    @property
    def coordinator_id(self) -> str | None:
        """As `LakeCommitter.coordinator_id`."""
        return None

    def append_leased(
        self, request: R, base: LakeBase, leased: LeasedCommit
    ) -> tuple[LogSnapshot, LeasedAnswer | None]:
        """As `append`, with a catalog that checks the lease and takes the report. Raises `LeaseLost` too. Default: the
        catalog does neither, and there is no answer."""
        return self.append(request, base, ()), None

    def settle(self, request: R) -> None:
        """Called after `append` for work that a crash may skip, such as a checkpoint. Never fails the commit."""
        return

    @abstractmethod
    def limit(self, ground: G) -> HistoryLimit:
        """Reads the table's `history.expire.*` properties."""

    @abstractmethod
    def protected(self, ground: G) -> set[SnapshotId]:
        """Returns snapshots that never expire: the head, our newest, those that a tag or a branch names."""

    def expiring(self, ground: G, snapshot_id: SnapshotId) -> ExpiringSnapshot:
        """Describes a snapshot so that its files can be found once the table has removed it."""
        return ExpiringSnapshot(snapshot_id=snapshot_id)

    @abstractmethod
    def forget(self, ground: G, snapshots: Collection[SnapshotId]) -> bool:
        """Removes snapshots in a separate commit on this ground; true if they are removed already. False: the head
        moved."""

    @abstractmethod
    def references(self, ground: G) -> set[str]:
        """Returns every file that a retained snapshot, tag or branch references."""

    @abstractmethod
    def only_in(self, ground: G, expired: Sequence[ExpiringSnapshot]) -> list[str]:
        """Returns the files that only these removed snapshots referenced, in the order to delete them."""

    def clean(self, ground: G, expired: Sequence[ExpiringSnapshot]) -> Sequence[str]:
        """Called after the files of `only_in` were deleted: removes the log's own leftovers, or returns their paths.
        Safe to repeat."""
        return ()


def plan_expiry(
    log: SnapshotLog[G, Any, Any], ground: G, now_ms: int, coming: int = 0, most: int | None = None
) -> list[ExpiringSnapshot]:
    """Plans which snapshots expire by age and number, oldest first; reads no more snapshots than it needs. `coming`:
    how many a commit adds. `most`: the most to return."""
    limit, old = log.limit(ground), list[SnapshotId]()
    for snapshot_id, superseded_at_ms in log.superseded(ground, max(1, limit.min_kept - coming)):
        if superseded_at_ms >= now_ms - limit.max_age_ms:
            break
        old.append(snapshot_id)
    retained = log.protected(ground) if old else ()
    return [log.expiring(ground, s) for s in [s for s in old if s not in retained][:most]]
