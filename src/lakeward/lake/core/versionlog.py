# SPDX-License-Identifier: Apache-2.0
"""A log of numbered versions: creating the next number is the compare-and-swap, and the newest version lists the
expired ones.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol, TypeVar

from lakeward.lake.core.history import HistoryLimit, LogSnapshot, OwnCommit, OwnHistory
from lakeward.lake.core.log import C, HeadMoved, SnapshotLog, TableGround, VersionRequest
from lakeward.model import ExpiringSnapshot, LakeBase, RoundId, SnapshotId


class VersionGround(TableGround, Protocol):
    @property
    def versions(self) -> Sequence[int]:
        """Readable versions, ascending; never empty."""

    @property
    def expired(self) -> AbstractSet[int]:
        """Versions among them that are no longer part of the table."""

    @property
    def properties(self) -> Mapping[str, str]: ...


V = TypeVar("V", bound=VersionGround)


class VersionLog(SnapshotLog[V, C, VersionRequest]):
    """A log of numbered versions. `kind`: names its encoded requests."""

    kind: str

    @abstractmethod
    def versions(self) -> Sequence[int]:
        """Lists the readable versions, ascending; none: the table does not exist."""

    @abstractmethod
    def describe(self, version: int) -> LogSnapshot:
        """Raises `SnapshotGone`, `LakeUnavailable`."""

    @abstractmethod
    def encode_change(self, ground: V, change: C) -> Mapping[str, Any]:
        """Encodes a change as JSON."""

    @abstractmethod
    def put(self, request: VersionRequest, expired: Sequence[int]) -> bool:
        """Creates the version after the one that the request was built on; false if it exists."""

    @abstractmethod
    def put_expired(self, ground: V, expired: Sequence[int]) -> bool:
        """Creates a version that only updates the list of expired ones; false if the next version exists."""

    def is_current(self, ground: V) -> bool:
        return self.versions()[-1:] == ground.versions[-1:]

    def newest_first(self, ground: V, *, with_expired: bool = False) -> Iterator[LogSnapshot]:
        expired = frozenset[int]() if with_expired else ground.expired
        shown = (v for v in reversed(ground.versions) if v not in expired)
        return (s for s in map(self.describe, shown) if s.is_snapshot)

    def get(self, ground: V, snapshot_id: SnapshotId) -> LogSnapshot:
        if not self.has(ground, snapshot_id) or int(snapshot_id) in ground.expired:
            raise self.gone(snapshot_id)
        return self.describe(int(snapshot_id))

    def has(self, ground: V, snapshot_id: SnapshotId) -> bool:
        return snapshot_id.isdigit() and int(snapshot_id) in ground.versions

    def newest_own(self, ground: V) -> OwnCommit | None:
        """Finds our last commit that landed, wherever the head is now."""
        own = (s for s in self.newest_first(ground, with_expired=True) if s.keys)
        return next((OwnCommit(s.snapshot_id, s.keys) for s in own), None)

    def own_at(self, ground: V, snapshot_id: SnapshotId) -> OwnCommit | None:
        """Finds our newest commit below a version; a restored version continues at the one it went back to."""
        below = int(snapshot_id)
        while (number := max((v for v in ground.versions if v <= below), default=None)) is not None:
            snapshot = self.describe(number)
            if snapshot.keys:
                return OwnCommit(snapshot.snapshot_id, snapshot.keys)
            below = number - 1 if snapshot.restores is None else int(snapshot.restores)
        return None

    def own_history(self, ground: V) -> OwnHistory:
        newest, own = self.newest_own(ground), self.own_at(ground, SnapshotId(str(ground.versions[-1])))
        counted = tuple(c.keys for c in (newest, own) if c is not None)
        return OwnHistory(newest=newest, stands_on=own, is_rolled_back=own != newest, counted=counted)

    def encode(self, ground: V, round_id: RoundId, keys: Mapping[str, str], change: C) -> bytes:
        body = self.encode_change(ground, change)
        return VersionRequest(ground.versions[-1], round_id, keys, frozenset(ground.expired), body).to_bytes(self.kind)

    def parse(self, payload: bytes) -> VersionRequest:
        return VersionRequest.from_bytes(self.kind, payload)

    def append(self, request: VersionRequest, base: LakeBase, expire: Collection[SnapshotId]) -> LogSnapshot:
        if not self.put(request, request.expired_with(expire, base.head)):
            raise HeadMoved(f"version {request.head + 1} is there already")
        return self.describe(request.head + 1)

    def forget(self, ground: V, snapshots: Collection[SnapshotId]) -> bool:
        expired = {*ground.expired, *map(int, snapshots)}
        return expired == ground.expired or self.put_expired(ground, sorted(expired))

    def limit(self, ground: V) -> HistoryLimit:
        return HistoryLimit.of(ground.properties)

    def protected(self, ground: V) -> set[SnapshotId]:
        own = self.newest_own(ground)
        return {s for s in (ground.head_id, None if own is None else own.snapshot_id) if s is not None}


class ManifestLog(VersionLog[V, C]):
    """A log whose versions each name all files of the table."""

    @abstractmethod
    def paths(self, version: int) -> Collection[str]:
        """Returns the paths of a version's files, below the table's folder."""

    @abstractmethod
    def path(self, version: int) -> str:
        """Returns the path of the version's own file."""

    def references(self, ground: V) -> set[str]:
        return self._all_paths(v for v in ground.versions if v not in ground.expired)

    def only_in(self, ground: V, expired: Sequence[ExpiringSnapshot]) -> list[str]:
        doomed = self._doomed(ground)
        return sorted(self._all_paths(doomed) - self._all_paths(v for v in ground.versions if v not in doomed))

    def clean(self, ground: V, expired: Sequence[ExpiringSnapshot]) -> Sequence[str]:
        return [self.path(v) for v in self._doomed(ground)]

    def _doomed(self, ground: V) -> list[int]:
        """Returns expired versions, and versions before the oldest retained snapshot."""
        retained = {s.sequence for s in self.newest_first(ground)}
        oldest = min(retained, default=ground.versions[-1])
        kept = {*retained, *map(int, self.protected(ground))}
        return [v for v in ground.versions if v not in kept and (v in ground.expired or v < oldest)]

    def _all_paths(self, versions: Iterable[int]) -> set[str]:
        return {path for version in versions for path in self.paths(version)}
