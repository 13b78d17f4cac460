# SPDX-License-Identifier: Apache-2.0
"""A Delta table's log, as the commit protocol uses it: entries are snapshots, creating the next version is the
compare-and-swap.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lakeward.lake.allowedpaths import has_dots
from lakeward.lake.core.change import ChangeKind, RowFileChange
from lakeward.lake.core.history import LogSnapshot, OwnCommit, OwnHistory
from lakeward.lake.core.log import VersionRequest
from lakeward.lake.core.versionlog import VersionLog
from lakeward.lake.delta.columns import table_schema
from lakeward.lake.delta.meta.actions import (
    EXPIRED_KEY,
    VERSION_KEY,
    WITNESS_KEY,
    Action,
    AddFile,
    DeltaTableState,
    LogEntry,
    commit_info,
    key_of,
    say,
)
from lakeward.lake.delta.meta.features import features_due
from lakeward.lake.delta.meta.log import DeltaLog, Listing
from lakeward.lake.delta.meta.vector import vector_path
from lakeward.lake.delta.rows import DeltaFileRows
from lakeward.model import ExpiringSnapshot, LakeBase, SnapshotId
from lakeward.spi import OFFSETS_KEY, ROWS_KEY, CommitProperties

_APP = "lakeward"
_RESTORE = "RESTORE"
_OPERATIONS = {
    "WRITE": ChangeKind.APPEND,
    "MERGE": ChangeKind.UPSERT,
    "OPTIMIZE": ChangeKind.REWRITE,
    "DELETE": ChangeKind.DROP,
}
"""Delta's operations -> the plug point's."""

_WORDS = {kind: word for word, kind in _OPERATIONS.items()}


@dataclass(frozen=True)
class DeltaGround:
    """A Delta table as loaded; commits are built on it."""

    listing: Listing
    state: DeltaTableState
    head: LogEntry | None

    @classmethod
    def load(cls, log: DeltaLog) -> DeltaGround:
        """Loads the table. Raises `LakeTableGone`, `LakeSchemaBroken`."""
        listing = log.listing()
        state, head = log.load(listing=listing), log.find_head(listing)
        return cls(listing, state, log.find_first(listing) if head is None else head)

    @property
    def versions(self) -> tuple[int, ...]:
        return self.listing.versions

    @property
    def expired(self) -> frozenset[int]:
        """Versions whose entries still exist."""
        return frozenset(v for v in self.state.expired if v >= self.versions[0])

    @property
    def properties(self) -> Mapping[str, str]:
        return self.state.properties

    @property
    def head_id(self) -> SnapshotId | None:
        return None if self.head is None else self.head.snapshot_id


class DeltaSnapshotLog(VersionLog[DeltaGround, RowFileChange[AddFile]]):
    lake, kind, ground_type = "delta", "delta-committable", DeltaGround

    def __init__(self, log: DeltaLog) -> None:
        self._log, self.table = log, log.table

    def load(self) -> DeltaGround:
        return DeltaGround.load(self._log)

    def versions(self) -> tuple[int, ...]:
        return self._log.listing().versions

    def describe(self, version: int) -> LogSnapshot:
        return _log_snapshot(self._log.entry(version))

    def newest_first(self, ground: DeltaGround, *, with_expired: bool = False) -> Iterator[LogSnapshot]:
        yield from super().newest_first(ground, with_expired=with_expired)
        first = self._log.find_first(ground.listing)
        if first is not None and (with_expired or first.version not in ground.expired):
            yield replace(_log_snapshot(first), is_snapshot=True)

    def newest_own(self, ground: DeltaGround) -> OwnCommit | None:
        return _own(ground.state.keys)

    def own_history(self, ground: DeltaGround) -> OwnHistory:
        newest = ground.state.keys
        if not newest:
            return OwnHistory()
        since = list(self._log.entries([v for v in ground.listing.versions if v > int(newest[VERSION_KEY])]))
        restored = next((e for e in reversed(since) if e.operation == _RESTORE), None)
        is_rolled_back = restored is not None or _may_be_restored(self._log, ground, newest)
        keys: Mapping[str, str] = {} if is_rolled_back else newest
        if restored is not None:
            keys = _restored_keys(self._log, restored, ground.listing)
        return OwnHistory(
            newest=_own(newest),
            stands_on=_own(keys),
            is_rolled_back=is_rolled_back,
            counted=(newest, *(e.keys for e in since)),
        )

    def own_at(self, ground: DeltaGround, snapshot_id: SnapshotId) -> OwnCommit | None:
        return _own(self._log.load(int(snapshot_id), ground.listing).keys)

    def own_keys(
        self, ground: DeltaGround, base: LakeBase, properties: CommitProperties, change: RowFileChange[AddFile]
    ) -> Mapping[str, str]:
        """Chooses a row of the round that later shows whether the table still has it; for a rewrite, the row chosen
        before."""
        if change.kind is ChangeKind.DROP:
            return {}
        state = ground.state
        for file in () if change.kind is ChangeKind.REWRITE else change.added:
            bucket = file.bucket(state.partition_keys)
            if bucket is not None and file.offsets is not None and (file.records or 0) > file.deleted:
                return {WITNESS_KEY: f"{bucket}@{file.offsets.start}"}
        return {k: v for k, v in state.keys.items() if k == WITNESS_KEY}

    def encode_change(self, ground: DeltaGround, change: RowFileChange[AddFile]) -> Mapping[str, Any]:
        now_ms, is_rewrite = self.now_ms(), change.kind in (ChangeKind.REWRITE, ChangeKind.DROP)
        after = [new for _, new in change.changed]
        actions = features_due(ground.state, has_vectors=any(f.vector for f in (*after, *change.added)))
        actions += [old.removal(now_ms, changes_data=True) for old, _ in change.changed]
        actions += [f.removal(now_ms, changes_data=change.kind is ChangeKind.DROP) for f in change.removed]
        moved = {"dataChange": False} if is_rewrite else {}
        actions += [{"add": {**f.action, **moved}} for f in (*after, *change.added)]
        return {"actions": actions, "operation": _WORDS[change.kind]}

    def put(self, request: VersionRequest, expired: Sequence[int]) -> bool:
        version = request.head + 1
        said = {**request.keys, VERSION_KEY: str(version), EXPIRED_KEY: json.dumps(expired)}
        actions = [*_own_actions(said, version, request.change["operation"]), *request.change["actions"]]
        return self._log.append(version, actions)

    def put_expired(self, ground: DeltaGround, expired: Sequence[int]) -> bool:
        said = {**ground.state.said, EXPIRED_KEY: json.dumps(expired)}
        return self._log.append(ground.state.version + 1, [{"commitInfo": commit_info("EXPIRE")}, say(said)])

    def settle(self, request: VersionRequest) -> None:
        self._log.checkpoint_if_due(request.head + 1)

    def references(self, ground: DeltaGround) -> set[str]:
        return self._seen(ground)[0]

    def only_in(self, ground: DeltaGround, expired: Sequence[ExpiringSnapshot]) -> list[str]:
        """Returns the files that the log names and no retained snapshot has."""
        referenced, seen = self._seen(ground)
        return sorted(seen - referenced)

    def clean(self, ground: DeltaGround, expired: Sequence[ExpiringSnapshot]) -> Sequence[str]:
        retained = (s.sequence for s in self.newest_first(ground))
        self._log.clean(min(retained, default=ground.listing.versions[-1]))
        return ()

    def _seen(self, ground: DeltaGround) -> tuple[set[str], set[str]]:
        """Returns the files of retained snapshots, and those that the log names, below the table's folder."""
        listing = ground.listing
        oldest = self._log.load(listing.versions[0] if listing.versions else None, listing)
        retained = sorted(s.sequence for s in self.newest_first(ground))
        live = {key: (oldest.version, file) for key, file in oldest.files.items()}
        seen, referenced = self._paths(oldest.files.values()), set[str]()
        for version in listing.versions[1:]:
            actions = self._log.actions(version)
            for key in (key_of(a["remove"]) for a in actions if a.get("remove") is not None):
                since, file = live.pop(key, (version, None))
                at = bisect_left(retained, since)
                if file is not None and at < len(retained) and retained[at] < version:
                    referenced |= self._paths([file])
            added = [AddFile(a["add"]) for a in actions if a.get("add") is not None]
            live.update((f.key, (version, f)) for f in added if f.key not in live)
            seen |= self._paths(added)
        return referenced | self._paths(file for _, file in live.values()), seen

    def _paths(self, files: Iterable[AddFile]) -> set[str]:
        root, paths = self._log.root, set[str]()
        for file in files:
            vector = None if file.vector is None else vector_path(root, file.vector)
            paths |= {file.location(root), *([] if vector is None else [vector])}
        return {path for path in paths if path.startswith(f"{root}/") and not has_dots(path)}


def _log_snapshot(entry: LogEntry) -> LogSnapshot:
    return LogSnapshot(
        snapshot_id=entry.snapshot_id,
        parent_id=SnapshotId(str(entry.version - 1)) if entry.version else None,
        committed_at_ms=entry.committed_at_ms,
        operation=_OPERATIONS.get(entry.operation, entry.operation.lower()),
        sequence=entry.version,
        keys=entry.keys,
        adds_rows=entry.adds_rows,
        removes_rows=entry.removes_rows,
        is_snapshot=entry.is_snapshot,
    )


def _own(keys: Mapping[str, str]) -> OwnCommit | None:
    return OwnCommit(SnapshotId(keys[VERSION_KEY]), keys) if keys else None


def _own_actions(said: Mapping[str, str], version: int, operation: str) -> Iterable[Action]:
    """Builds the first actions of our entries: for people and their tools, for engines that look for our last entry,
    and for Lakeward."""
    shown: dict[str, Any] = {k: v for k, v in said.items() if k not in (OFFSETS_KEY, EXPIRED_KEY)}
    info = commit_info(operation, **shown)
    yield {"commitInfo": info}
    yield {"txn": {"appId": _APP, "version": version, "lastUpdated": info["timestamp"]}}
    yield say(said)


def _may_be_restored(log: DeltaLog, ground: DeltaGround, newest: Mapping[str, str]) -> bool:
    """Whether the table may have been restored: other engines deleted entries after ours, and the table has other rows
    than we left, for unknown reasons. With the same number of rows, and those of our newest commit among them, it was
    compacted."""
    since = range(int(newest[VERSION_KEY]) + 1, ground.state.version + 1)
    if ROWS_KEY not in newest or set(since) <= set(ground.listing.versions):
        return False
    rows = DeltaFileRows(log.files, log.root, log.table, table_schema(()))
    if sum(rows.count(f) for f in ground.state.files.values()) != int(newest[ROWS_KEY]):
        return True
    return WITNESS_KEY in newest and not _has_witness(ground.state, rows, newest[WITNESS_KEY])


def _has_witness(state: DeltaTableState, rows: DeltaFileRows, witness: str) -> bool:
    bucket, _, offset = witness.rpartition("@")
    for file in state.files.values():
        is_near = file.offsets is None or file.offsets.stop > int(offset)
        if is_near and str(file.bucket(state.partition_keys)) == bucket:
            alive = np.delete(rows.offsets(file), rows.deleted(file).values)
            if (alive >= int(offset)).any():
                return True
    return False


def _restored_keys(log: DeltaLog, restored: LogEntry, listing: Listing) -> Mapping[str, str]:
    """Returns the keys of the version that another engine restored; empty if it gave a time, or the version no longer
    exists."""
    text = str((restored.info.get("operationParameters") or {}).get("version", ""))
    return log.load(int(text), listing).keys if text.isdigit() and int(text) in listing.versions else {}
