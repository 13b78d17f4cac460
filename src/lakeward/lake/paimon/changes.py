# SPDX-License-Identifier: Apache-2.0
"""What a commit changes in a Paimon table: manifest entries. Rows are merged by key on reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pypaimon.write.commit_message_serializer import deserialize_commit_message

from lakeward.lake.core.change import ChangeKind, Changes, CommitChange, RoundWork, WholeGroup
from lakeward.lake.paimon.foreignrows import find_foreign_rows, find_stale, foreign_files
from lakeward.lake.paimon.meta.connection import lake_errors
from lakeward.lake.paimon.meta.history import PaimonHistory, is_managed
from lakeward.lake.paimon.meta.manifests import ADD, Manifests
from lakeward.lake.paimon.meta.mapping import check_options
from lakeward.lake.paimon.newsnapshot import (
    APPEND,
    COMPACT,
    OVERWRITE,
    ManifestChange,
    added,
    beside,
    removed,
)
from lakeward.lake.paimon.rewrite import REWRITE_KIND
from lakeward.lake.paimon.writer import RESULT_KIND, VERSION
from lakeward.model import RoundId, SnapshotId, TableInfo, unpack
from lakeward.spi import RewriteResult


@dataclass(frozen=True)
class PaimonGround:
    """The table as it was loaded: its newest schema, its snapshots."""

    lake_table: Any
    history: PaimonHistory

    @property
    def head_id(self) -> SnapshotId | None:
        return None if self.history.head is None else self.history.head.id

    @property
    def is_managed(self) -> bool:
        """Does its catalog take commits?"""
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
        foreign = find_foreign_rows(self._info, history, manifests, work.renewal, is_resync=work.is_resync)
        stale = find_stale(self._info, history, manifests, work.base, work.properties.offsets)
        gone = [*foreign, *stale]
        new = [added(ground.lake_table, m, f) for m in messages for f in m.new_files]
        changelog = [added(ground.lake_table, m, f) for m in messages for f in m.changelog_files]
        return PaimonChange(
            kind=ChangeKind.UPSERT if gone else ChangeKind.APPEND,
            rows=sum(b["rows"] for _, b, _ in bodies),
            deletes=len(gone),
            files=sum(b["files"] for _, b, _ in bodies),
            bytes_written=sum(b["bytes"] for _, b, _ in bodies),
            manifest_change=ManifestChange(OVERWRITE if gone else APPEND, [*new, *map(removed, gone)], changelog),
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
