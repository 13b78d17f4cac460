# SPDX-License-Identifier: Apache-2.0
"""A Lance table's versions as the commit protocol uses them: the next manifest is the swap."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import lance
from lance.fragment import FragmentMetadata

from lakeward.errors import LakeUnavailable, SnapshotGone
from lakeward.lake.core.change import RowFileChange
from lakeward.lake.core.history import LogSnapshot, OwnCommit, OwnHistory
from lakeward.lake.core.historylimit import HistoryLimit
from lakeward.lake.core.log import HeadMoved, SnapshotLog, VersionRequest
from lakeward.lake.lance.table import LanceTable
from lakeward.lake.lance.versions import EXPIRED_KEY, LanceVersion
from lakeward.model.expiry import ExpiringSnapshot
from lakeward.model.ids import RoundId, SnapshotId
from lakeward.model.round import LakeBase
from lakeward.spi.snapshotkeys import REWRITE_KEY, TAG

_KIND = "lance-committable"
_OPERATIONS = {"Append": "append", "Update": "overwrite", "Rewrite": "replace"}
"""Lance's words and the plug point's."""


@dataclass(frozen=True)
class LanceGround:
    """The table as it was loaded: what a commit is built on. `own`: our newest commit, which a tag keeps."""

    versions: tuple[int, ...]
    dataset: lance.LanceDataset
    head: LanceVersion | None
    own: LanceVersion | None

    @classmethod
    def load(cls, table: LanceTable) -> LanceGround:
        """Raises `LakeTableGone`."""
        versions = table.versions()
        if not versions:
            raise table.missing()
        return cls(
            versions,
            table.open(versions[-1]),
            next((v for v in table.newest_first(versions) if v.is_snapshot), None),
            next((v for v in table.newest_first(versions) if v.keys), None),
        )

    @property
    def version(self) -> int:
        return self.versions[-1]

    @property
    def head_id(self) -> SnapshotId | None:
        return None if self.head is None else self.head.snapshot_id

    @property
    def keys(self) -> Mapping[str, str]:
        """Empty: no commit of ours yet."""
        return {} if self.own is None else self.own.keys

    @cached_property
    def config(self) -> dict[str, str]:
        return dict(self.dataset.config())

    @cached_property
    def expired(self) -> frozenset[int]:
        """Versions that are no longer part of the table's history, as far as their manifests are still there."""
        said = (json.loads(facts.get(EXPIRED_KEY, "[]")) for facts in (self.keys, self.config))
        return frozenset(v for versions in said for v in versions).intersection(self.versions)


class LanceSnapshotLog(SnapshotLog[LanceGround, RowFileChange[Any], VersionRequest]):
    lake, ground_type = "lance", LanceGround

    def __init__(self, table: LanceTable) -> None:
        self._table, self.table = table, table.name

    def load(self) -> LanceGround:
        return LanceGround.load(self._table)

    def is_current(self, ground: LanceGround) -> bool:
        return self._table.versions()[-1:] == (ground.version,)

    def newest_first(self, ground: LanceGround, *, with_expired: bool = False) -> Iterator[LogSnapshot]:
        expired = frozenset[int]() if with_expired else ground.expired
        versions = self._table.newest_first([v for v in ground.versions if v not in expired])
        return (_log_snapshot(v) for v in versions if v.is_snapshot)

    def get(self, ground: LanceGround, snapshot_id: SnapshotId) -> LogSnapshot:
        if not self.has(ground, snapshot_id) or int(snapshot_id) in ground.expired:
            raise self.gone(snapshot_id)
        return _log_snapshot(self._table.version(int(snapshot_id)))

    def has(self, ground: LanceGround, snapshot_id: SnapshotId) -> bool:
        return snapshot_id.isdigit() and int(snapshot_id) in ground.versions

    def own_history(self, ground: LanceGround) -> OwnHistory:
        newest = ground.own
        if newest is None:
            return OwnHistory()
        own = self._find_own(ground, ground.version)
        counted = tuple(v.keys for v in (newest, own) if v is not None)
        return OwnHistory(newest=_own(newest), stands_on=_own(own), is_rolled_back=own != newest, counted=counted)

    def own_at(self, ground: LanceGround, snapshot_id: SnapshotId) -> OwnCommit | None:
        return _own(self._find_own(ground, int(snapshot_id)))

    def _find_own(self, ground: LanceGround, at: int) -> LanceVersion | None:
        """A version that was restored stands on the one it went back to."""
        below = at
        while (number := max((v for v in ground.versions if v <= below), default=None)) is not None:
            version = self._table.version(number)
            if version.keys:
                return version
            below = number - 1 if version.restored is None else version.restored
        return None

    def encode(
        self, ground: LanceGround, round_id: RoundId, keys: Mapping[str, str], change: RowFileChange[Any]
    ) -> bytes:
        body = {
            "updated": [json.dumps(new.to_json()) for _, new in change.changed],
            "new": [json.dumps(f.to_json()) for f in change.added],
            "removed": [f.id for f in change.removed],
        }
        return VersionRequest(ground.version, round_id, keys, ground.expired, body).to_bytes(_KIND)

    def parse(self, payload: bytes) -> VersionRequest:
        return VersionRequest.from_bytes(_KIND, payload)

    def append(self, request: VersionRequest, base: LakeBase, expire: Collection[SnapshotId]) -> LogSnapshot:
        said = {**request.keys, EXPIRED_KEY: json.dumps(request.expired_with(expire, base.head))}
        try:
            landed = self._table.commit(request.head, _operation(request.change), said)
        except SnapshotGone:
            landed = False
        if not landed:
            raise HeadMoved(f"version {request.head + 1} is there already")
        return _log_snapshot(self._table.version(request.head + 1))

    def settle(self, request: VersionRequest) -> None:
        with suppress(LakeUnavailable, SnapshotGone, ValueError):  # then the next commit sets it
            self._table.tag(TAG, request.head + 1)

    def limit(self, ground: LanceGround) -> HistoryLimit:
        return HistoryLimit.of(ground.config)

    def protected(self, ground: LanceGround) -> set[SnapshotId]:
        own = {v.version for v in (ground.head, ground.own) if v is not None}
        return {SnapshotId(str(v)) for v in {ground.version, *own, *self._table.referenced(ground.versions)}}

    def forget(self, ground: LanceGround, snapshots: Collection[SnapshotId]) -> bool:
        versions = {int(s) for s in snapshots}
        if versions <= ground.expired:
            return True
        update = lance.LanceOperation.UpdateMap({EXPIRED_KEY: json.dumps(sorted(ground.expired | versions))})
        return self._table.commit(ground.version, lance.LanceOperation.UpdateConfig(config_updates=update))

    def references(self, ground: LanceGround) -> set[str]:
        return self._paths(v for v in ground.versions if v not in ground.expired)

    def only_in(self, ground: LanceGround, expired: Sequence[ExpiringSnapshot]) -> list[str]:
        doomed = self._doomed(ground)
        return sorted(self._paths(doomed) - self._paths(v for v in ground.versions if v not in doomed))

    def clean(self, ground: LanceGround, expired: Sequence[ExpiringSnapshot]) -> Sequence[str]:
        return [self._table.path(v) for v in self._doomed(ground)]

    def _doomed(self, ground: LanceGround) -> list[int]:
        retained = {s.sequence for s in self.newest_first(ground)}
        oldest = min(retained, default=ground.version)
        kept = {*retained, *map(int, self.protected(ground))}
        return [v for v in ground.versions if v not in kept and (v in ground.expired or v < oldest)]

    def tag(self, name: str, snapshot_id: SnapshotId) -> None:
        self._table.tag(name, int(snapshot_id))

    def untag(self, name: str) -> None:
        self._table.tags.delete(name)

    def _paths(self, versions: Iterable[int]) -> set[str]:
        return {path for version in versions for path in self._table.paths(version)}


def _log_snapshot(version: LanceVersion) -> LogSnapshot:
    is_rewrite = REWRITE_KEY in version.keys
    return LogSnapshot(
        snapshot_id=version.snapshot_id,
        parent_id=SnapshotId(str(version.version - 1)),
        committed_at_ms=version.committed_at_ms,
        operation="replace" if is_rewrite else _OPERATIONS.get(version.operation, version.operation.lower()),
        sequence=version.version,
        keys=version.keys,
        removes_rows=version.may_remove_rows,
    )


def _own(version: LanceVersion | None) -> OwnCommit | None:
    return None if version is None else OwnCommit(version.snapshot_id, version.keys)


def _operation(change: Mapping[str, Any]) -> lance.LanceOperation.BaseOperation:
    """An update is one that others' index builds and appends can go along with."""
    new, updated = ([FragmentMetadata.from_json(text) for text in change[side]] for side in ("new", "updated"))
    if not updated and not change["removed"] and not any(f.deletion_file for f in new):
        return lance.LanceOperation.Append(new)
    return lance.LanceOperation.Update(
        removed_fragment_ids=list(change["removed"]), updated_fragments=updated, new_fragments=new, fields_modified=[]
    )
