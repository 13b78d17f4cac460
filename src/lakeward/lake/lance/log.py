# SPDX-License-Identifier: Apache-2.0
"""A Lance table's versions, as the commit protocol uses them: creating the next manifest is the compare-and-swap."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import lance
from lance.fragment import FragmentMetadata

from lakeward.errors import LakeUnavailable, SnapshotGone
from lakeward.lake.core.change import RowFileChange
from lakeward.lake.core.history import LogSnapshot
from lakeward.lake.core.log import VersionRequest
from lakeward.lake.core.versionlog import ManifestLog
from lakeward.lake.lance.table import EXPIRED_KEY, LanceTable, LanceVersion
from lakeward.model import SnapshotId
from lakeward.spi import REWRITE_KEY, TAG

_OPERATIONS = {"Append": "append", "Update": "overwrite", "Rewrite": "replace"}
"""Lance's operations -> the plug point's."""


@dataclass(frozen=True)
class LanceGround:
    """A Lance table as loaded; commits are built on it. `own`: our newest commit, which a tag protects."""

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
        """Empty: we have not committed yet."""
        return {} if self.own is None else self.own.keys

    @cached_property
    def properties(self) -> dict[str, str]:
        return dict(self.dataset.config())

    @cached_property
    def expired(self) -> frozenset[int]:
        """Versions that are no longer part of the table's history, as far as their manifests still exist."""
        said = (json.loads(facts.get(EXPIRED_KEY, "[]")) for facts in (self.keys, self.properties))
        return frozenset(v for versions in said for v in versions).intersection(self.versions)


class LanceSnapshotLog(ManifestLog[LanceGround, RowFileChange[Any]]):
    lake, kind, ground_type = "lance", "lance-committable", LanceGround

    def __init__(self, table: LanceTable) -> None:
        self._table, self.table = table, table.name

    def load(self) -> LanceGround:
        return LanceGround.load(self._table)

    def versions(self) -> tuple[int, ...]:
        return self._table.versions()

    def describe(self, version: int) -> LogSnapshot:
        return _log_snapshot(self._table.version(version))

    def encode_change(self, ground: LanceGround, change: RowFileChange[Any]) -> Mapping[str, Any]:
        return {
            "updated": [json.dumps(new.to_json()) for _, new in change.changed],
            "new": [json.dumps(f.to_json()) for f in change.added],
            "removed": [f.id for f in change.removed],
        }

    def put(self, request: VersionRequest, expired: Sequence[int]) -> bool:
        said = {**request.keys, EXPIRED_KEY: json.dumps(expired)}
        try:
            return self._table.commit(request.head, _operation(request.change), said)
        except SnapshotGone:
            return False

    def put_expired(self, ground: LanceGround, expired: Sequence[int]) -> bool:
        update = lance.LanceOperation.UpdateMap({EXPIRED_KEY: json.dumps(expired)})
        return self._table.commit(ground.version, lance.LanceOperation.UpdateConfig(config_updates=update))

    def paths(self, version: int) -> frozenset[str]:
        return self._table.paths(version)

    def path(self, version: int) -> str:
        return self._table.path(version)

    def settle(self, request: VersionRequest) -> None:
        with suppress(LakeUnavailable, SnapshotGone, ValueError):  # then the next commit sets it
            self._table.tag(TAG, request.head + 1)

    def protected(self, ground: LanceGround) -> set[SnapshotId]:
        named = {ground.version, *self._table.referenced(ground.versions)}
        return super().protected(ground) | {SnapshotId(str(v)) for v in named}

    def tag(self, name: str, snapshot_id: SnapshotId) -> None:
        self._table.tag(name, int(snapshot_id))

    def untag(self, name: str) -> None:
        self._table.tags.delete(name)


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
        is_snapshot=version.is_snapshot,
        restores=None if version.restored is None else SnapshotId(str(version.restored)),
    )


def _operation(change: Mapping[str, Any]) -> lance.LanceOperation.BaseOperation:
    """Chooses the operation of a commit. Concurrent index builds and appends of other engines are compatible with an
    update."""
    new, updated = ([FragmentMetadata.from_json(text) for text in change[side]] for side in ("new", "updated"))
    if not updated and not change["removed"] and not any(f.deletion_file for f in new):
        return lance.LanceOperation.Append(new)
    return lance.LanceOperation.Update(
        removed_fragment_ids=list(change["removed"]), updated_fragments=updated, new_fragments=new, fields_modified=[]
    )
