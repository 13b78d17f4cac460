# SPDX-License-Identifier: Apache-2.0
"""Reconcile on a Lance table: what our newest commit says, and whether others restored an older version since."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import lance

from lakeward.errors import LakeForeign, LakeRolledBack
from lakeward.lake.lance.table import LanceTable
from lakeward.lake.lance.versions import EXPIRED_KEY, LanceVersion
from lakeward.model.ids import SnapshotId, TableId
from lakeward.model.offsets import OffsetMap
from lakeward.model.round import LakeBase
from lakeward.spi.lakefile import LakeSnapshot
from lakeward.spi.snapshotkeys import (
    FENCE_KEY,
    GENERATION_KEY,
    REWRITE_KEY,
    TABLE_ID_KEY,
    decode_base,
    decode_offsets,
    decode_snapshot,
    decode_token,
)

_OPERATIONS = {"Append": "append", "Update": "overwrite", "Rewrite": "replace"}
"""Lance's words and the plug point's."""


@dataclass(frozen=True)
class LanceGround:
    """The table as it was found: what a commit is built on. `own`: our newest commit, which a tag keeps."""

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

    def snapshots(self, table: LanceTable) -> list[LanceVersion]:
        """Those that have not expired, oldest first."""
        retained = (table.version(v) for v in self.versions if v not in self.expired)
        return [v for v in retained if v.is_snapshot]


def load_base(table: LanceTable, table_id: TableId, ground: LanceGround, *, as_is: bool = False) -> LakeBase:
    """Raises `LakeForeign`, `LakeRolledBack` (not when `as_is`), `LakeTampered`."""
    newest = ground.own
    if newest is None:
        return LakeBase(head=ground.head_id, loaded=ground)
    own = find_own(table, ground.versions, ground.version)
    if own != newest and not as_is:
        raise LakeRolledBack(table=table.name, head=str(ground.head_id), ours=newest.snapshot_id)
    if own is None:
        return LakeBase(head=ground.head_id, loaded=ground)
    owner = own.keys.get(TABLE_ID_KEY, table_id)
    if owner != table_id:
        raise LakeForeign(table=table.name, found=owner, expected=table_id)
    at, offsets = own.snapshot_id, parse_offsets(own, table.name)
    token = decode_token(own.keys, at)
    base = decode_base(own.keys, table=table.name, snapshot_id=at, head=ground.head_id, offsets=offsets, token=token)
    fence, generation = (
        max(int(k.get(key, "0")) for k in (newest.keys, own.keys)) for key in (FENCE_KEY, GENERATION_KEY)
    )
    return replace(base, fence=fence, generation=generation, loaded=ground)


def find_own(table: LanceTable, versions: Sequence[int], at: int) -> LanceVersion | None:
    """Our newest commit that a version stands on: one that was restored stands on the one it went back to."""
    below = at
    while (number := max((v for v in versions if v <= below), default=None)) is not None:
        version = table.version(number)
        if version.keys:
            return version
        below = number - 1 if version.restored is None else version.restored
    return None


def describe(version: LanceVersion, table: str) -> LakeSnapshot:
    """A snapshot as the plug point shows it."""
    is_rewrite = REWRITE_KEY in version.keys
    return decode_snapshot(
        version.keys,
        snapshot_id=version.snapshot_id,
        parent_id=SnapshotId(str(version.version - 1)),
        committed_at_ms=version.committed_at_ms,
        operation="replace" if is_rewrite else _OPERATIONS.get(version.operation, version.operation.lower()),
        offsets=parse_offsets(version, table) if version.keys else None,
        sequence=version.version,
    )


def parse_offsets(version: LanceVersion, table: str) -> OffsetMap:
    return decode_offsets(version.keys, table, version.snapshot_id)
