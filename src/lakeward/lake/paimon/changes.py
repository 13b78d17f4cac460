# SPDX-License-Identifier: Apache-2.0
"""File changes of a commit in a Paimon table: manifest entries. Rows are merged by key when they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any

from pypaimon.write.commit_message_serializer import deserialize_commit_message

from lakeward.lake.core.change import ChangeKind, Changes, CommitChange, RoundWork, WholeGroup
from lakeward.lake.core.foreign import ForeignFile, check_foreign, find_foreign_files
from lakeward.lake.paimon.meta.connection import lake_errors
from lakeward.lake.paimon.meta.history import PaimonHistory, PaimonSnapshot, is_managed
from lakeward.lake.paimon.meta.manifests import ADD, Entry, Manifests
from lakeward.lake.paimon.meta.mapping import check_options
from lakeward.lake.paimon.newsnapshot import APPEND, COMPACT, OVERWRITE, ManifestChange, added, beside, removed
from lakeward.lake.paimon.rewrite import REWRITE_KIND
from lakeward.lake.paimon.writer import RESULT_KIND, VERSION
from lakeward.model import GONE_PARTITION, Bucket, LakeBase, RoundId, SnapshotId, TableInfo, unpack
from lakeward.spi import Renewal, RewriteResult


def find_hidden(
    table: TableInfo, history: PaimonHistory, manifests: Manifests, renewal: Renewal | None, *, is_resync: bool
) -> Sequence[Entry]:
    """Finds foreign files that the next commit removes: rows that they replaced are visible again, as rows are merged
    when they are read. Raises `ForeignRowsFound` if the table's option refuses them, or if a compaction has merged them
    already."""
    late = {} if renewal is None else foreign_files(table, history, manifests, after=int(renewal.head))
    added = foreign_files(table, history, manifests).values()
    files = (ForeignFile(e, e.key, e.bucket, int(e.file.row_count), e.key in late) for e in added)
    unsettled = find_foreign_files(files, renewal)
    if not unsettled:
        return []
    live = {e.key for e in manifests.live(history.head)}
    hits = [f.file for f in unsettled if f.path in live]
    check_foreign(
        table,
        (s.id for s in _foreign_snapshots(table, history)),
        sum(f.rows for f in unsettled),
        unsettled[0].path,
        is_resync=is_resync,
        is_ambiguous=len(hits) < len(unsettled),
    )
    return hits


def find_stale(
    table: TableInfo,
    history: PaimonHistory,
    manifests: Manifests,
    base: LakeBase,
    offsets: Mapping[Bucket, int],
) -> Sequence[Entry]:
    """Finds files of a partition that Fluss created again, with another number and no offset of its own, under the same
    values. `offsets`: those that the commit moves."""
    recreated = {b for b in offsets if b.partition and b not in base.offsets}
    if not table.is_pk or not recreated or not any(b.partition.startswith(GONE_PARTITION) for b in base.offsets):
        return []
    return [e for e in manifests.live(history.head) if e.bucket in recreated]


def foreign_files(table: TableInfo, history: PaimonHistory, manifests: Manifests, after: int = 0) -> dict[str, Entry]:
    """Returns foreign files added to a PK table since our newest round, except by compactions; our rewrites do not
    include them."""
    return {
        e.key: e
        for s in _foreign_snapshots(table, history)
        if s.body["commitKind"] != "COMPACT" and s.number > after
        for e in manifests.changed(s)
        if e.raw.kind == ADD
    }


def _foreign_snapshots(table: TableInfo, history: PaimonHistory) -> list[PaimonSnapshot]:
    """None before the first round."""
    if not table.is_pk or history.newest_ours() is None:
        return []
    since = takewhile(lambda s: s.is_rewrite or not s.is_ours, history.newest_first())
    return [s for s in since if not s.is_ours]


@dataclass(frozen=True)
class PaimonGround:
    """A Paimon table as loaded: its newest schema, its snapshots."""

    lake_table: Any
    history: PaimonHistory

    @property
    def head_id(self) -> SnapshotId | None:
        return None if self.history.head is None else self.history.head.id

    @property
    def is_managed(self) -> bool:
        """Whether its catalog accepts commits."""
        return is_managed(self.lake_table)

    @cached_property
    def manifests(self) -> Manifests:
        return Manifests(self.lake_table)


@dataclass(frozen=True, kw_only=True)
class PaimonChange(CommitChange):
    manifest_change: ManifestChange


class PaimonChanges(Changes[PaimonGround, PaimonChange]):
    def __init__(self, info: TableInfo) -> None:
        self._info, self._where = info, str(info.path)

    def plan_round(self, ground: PaimonGround, work: RoundWork) -> PaimonChange:
        history, manifests = ground.history, ground.manifests
        check_options(self._info, ground.lake_table.table_schema.options)
        bodies = [unpack(RESULT_KIND, VERSION, data) for data in work.results]
        messages = [_message(ground.lake_table, blob) for _, _, blobs in bodies for blob in blobs]
        foreign = find_hidden(self._info, history, manifests, work.renewal, is_resync=work.is_resync)
        stale = find_stale(self._info, history, manifests, work.base, work.properties.offsets)
        dropped = [*foreign, *stale]
        new = [added(ground.lake_table, m, f) for m in messages for f in m.new_files]
        changelog = [added(ground.lake_table, m, f) for m in messages for f in m.changelog_files]
        return PaimonChange(
            kind=ChangeKind.UPSERT if dropped else ChangeKind.APPEND,
            rows=sum(b["rows"] for _, b, _ in bodies),
            deletes=len(dropped),
            files=sum(b["files"] for _, b, _ in bodies),
            bytes_written=sum(b["bytes"] for _, b, _ in bodies),
            manifest_change=ManifestChange(OVERWRITE if dropped else APPEND, [*new, *map(removed, dropped)], changelog),
        )

    def find_whole(self, ground: PaimonGround, results: Sequence[RewriteResult]) -> Sequence[WholeGroup]:
        check_options(self._info, ground.lake_table.table_schema.options)
        with lake_errors(self._where, "read manifests of"):
            live = {e.path for e in ground.manifests.live(ground.history.head)}
        whole = [r for r in results if all(f.path in live for f in r.group.files)]
        foreign = foreign_files(self._info, ground.history, ground.manifests) if whole else {}
        return [WholeGroup(r) for r in whole if not any(f.path in foreign for f in r.group.files)]

    def plan_rewrite(self, ground: PaimonGround, groups: Sequence[WholeGroup], round_id: RoundId) -> PaimonChange:
        with lake_errors(self._where, "read manifests of"):
            live = {e.path: e for e in ground.manifests.live(ground.history.head)}
        entries = []
        for result in (g.result for g in groups):
            inputs = [live[f.path] for f in result.group.files]
            _, _, blobs = unpack(REWRITE_KIND, VERSION, result.payload)
            new = [f for blob in blobs for f in _message(ground.lake_table, blob).new_files]
            entries += [*(beside(inputs[0], ADD, f) for f in new), *map(removed, inputs)]
        is_dropped = all(g.result.group.is_dropped for g in groups)
        return PaimonChange(
            kind=ChangeKind.DROP if is_dropped else ChangeKind.REWRITE,
            rows=sum(g.result.rows for g in groups),
            files=sum(e.kind == ADD for e in entries),
            bytes_written=sum(g.result.bytes_written for g in groups),
            manifest_change=ManifestChange(OVERWRITE if is_dropped else COMPACT, entries),
        )


def _message(lake_table: Any, blob: bytes) -> Any:
    schema = lake_table.table_schema
    keys = lake_table.trimmed_primary_keys_fields if schema.primary_keys else None
    return deserialize_commit_message(blob, lake_table.partition_keys_fields, keys)
