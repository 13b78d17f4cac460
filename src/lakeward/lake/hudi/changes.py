# SPDX-License-Identifier: Apache-2.0
"""File changes of a commit in a Hudi table: staged files are added, file groups removed. Rows are merged by key when
they are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakeward.errors import CommitConflict, LakeSchemaBroken
from lakeward.lake.core.change import ChangeKind, Changes, CommitChange, RoundWork, WholeGroup
from lakeward.lake.hudi import lake_errors
from lakeward.lake.hudi.foreignrows import find_restored, foreign_files, write_restored
from lakeward.lake.hudi.ground import HudiGround
from lakeward.lake.hudi.landing import COMPACTION
from lakeward.lake.hudi.meta.columns import encode_columns, file_schema, to_avro_schema
from lakeward.lake.hudi.meta.properties import record_key_fields, spell_properties, wrong_properties
from lakeward.lake.hudi.meta.slices import GroupId, SeenFile
from lakeward.lake.hudi.meta.table import HudiTable
from lakeward.lake.hudi.meta.timeline import new_instant
from lakeward.lake.hudi.rewrite import HudiRewrittenGroup
from lakeward.lake.hudi.scan.rows import HudiRows, base_facts
from lakeward.lake.hudi.writer import TARGET_BYTES, TARGET_KEY, HudiWriteHandle, HudiWriteResult, StagedFile
from lakeward.model import Bucket, RoundId, TableInfo, fault_point
from lakeward.spi import RewriteResult


@dataclass(frozen=True, kw_only=True)
class HudiChange(CommitChange):
    """A commit's change. `requested`: the instant's time. `replaced`: removed file groups, by partition."""

    requested: str
    action: str
    operation: str
    staged: tuple[StagedFile, ...]
    replaced: dict[str, tuple[str, ...]] | None = None


class HudiChanges(Changes[HudiGround, HudiChange]):
    def __init__(self, table: HudiTable, info: TableInfo) -> None:
        self._table, self._info = table, info

    def plan_round(self, ground: HudiGround, work: RoundWork) -> HudiChange:
        check_properties(ground)
        written, round_id = [HudiWriteResult.from_bytes(data) for data in work.results], work.properties.round_id
        self._check_groups(ground, written, round_id)
        fault_point("lake.before-resolve", round_id=round_id)
        rows = HudiRows(self._table.files, self._table.name, file_schema(ground.columns, ""))
        restored = find_restored(self._info, ground, work.renewal, rows, is_resync=work.is_resync)
        requested, first = written[0].instant if written else new_instant(), list[StagedFile]()
        if restored:
            handle = handle_of(self._table, self._info, ground, round_id, requested)
            with lake_errors(self._table.name, "write rows back to"):
                first = write_restored(self._table.files, handle, restored)
        staged = (*first, *(f for r in written for f in r.files))
        added, is_pk = sum(f.rows for r in written for f in r.files), self._info.is_pk
        return HudiChange(
            kind=ChangeKind.UPSERT if is_pk else ChangeKind.APPEND,
            rows=added,
            deletes=sum(f.deletes for f in staged),
            files=len(staged),
            bytes_written=sum(f.size_bytes for f in staged),
            total_rows=None if is_pk else self._count(ground) + added,
            requested=requested,
            action="deltacommit" if is_pk else "commit",
            operation="UPSERT" if is_pk else "BULK_INSERT",
            staged=staged,
        )

    def find_whole(self, ground: HudiGround, results: Sequence[RewriteResult]) -> Sequence[WholeGroup]:
        check_properties(ground)
        if self._info.is_pk and foreign_files(ground):
            return []
        live, whole_groups, taken = _live(ground), list[WholeGroup](), set[GroupId]()
        for result in results:
            group = HudiRewrittenGroup.from_bytes(result.payload)
            group_ids = _groups_of(group, live)
            if _is_whole(group, live) and not group_ids & taken:
                whole_groups.append(WholeGroup(result))
                taken |= group_ids
        return whole_groups

    def plan_rewrite(self, ground: HudiGround, groups: Sequence[WholeGroup], round_id: RoundId) -> HudiChange:
        live, replaced = _live(ground), dict[str, list[str]]()
        rewritten = [HudiRewrittenGroup.from_bytes(g.result.payload) for g in groups]
        for group in rewritten:
            if group.file is None or not self._info.is_pk:
                for partition, file_id in sorted(_groups_of(group, live)):
                    replaced.setdefault(partition, []).append(file_id)
        staged = tuple(g.file for g in rewritten if g.file is not None)
        is_dropped = all(g.result.group.is_dropped for g in groups)
        return HudiChange(
            kind=ChangeKind.DROP if is_dropped else ChangeKind.REWRITE,
            rows=sum(g.result.rows for g in groups),
            files=len(staged),
            bytes_written=sum(f.size_bytes for f in staged),
            requested=max(g.instant for g in rewritten),
            action="replacecommit" if replaced else COMPACTION,
            operation="DELETE_PARTITION" if is_dropped else "CLUSTER" if replaced else "COMPACT",
            staged=staged,
            replaced={k: tuple(v) for k, v in replaced.items()} if replaced else None,
        )

    def _check_groups(self, ground: HudiGround, written: Sequence[HudiWriteResult], round_id: RoundId) -> None:
        """Refuses a bucket whose file group was added or removed since the round began: its files have the wrong
        name."""
        there = file_groups(ground, self._info) if self._info.is_pk and written else {}
        for result in written if self._info.is_pk else ():
            if there.get(Bucket.parse(result.bucket), "") != result.group:
                reason = (
                    f"another engine removed or created the file group of bucket {result.bucket} since the round began"
                )
                raise CommitConflict(table=self._table.name, round_id=round_id, reason=reason, lost=True)

    def _count(self, ground: HudiGround) -> int:
        """Rows of a log table."""
        files = ground.files_at(ground.timeline.head)
        return sum(base_facts(self._table.files, f, self._table.name).rows for f in files if not f.is_log)


def handle_of(
    table: HudiTable, info: TableInfo, ground: HudiGround, round_id: RoundId, requested: str | None = None
) -> HudiWriteHandle:
    """`requested`: the time of the round's instant, if known. Raises `LakeSchemaBroken`."""
    check_properties(ground)
    descriptor, target = info.descriptor, ground.properties.get(TARGET_KEY, "")
    newest = max((i.completed for i in ground.timeline.instants), default="")
    return HudiWriteHandle(
        staging=table.staging(round_id),
        instant=requested or new_instant(newest),
        columns=encode_columns(ground.columns),
        avro=to_avro_schema(ground.columns, info.path.table, with_meta=True),
        partition_keys=tuple(descriptor.partition_keys),
        key_fields=record_key_fields(descriptor),
        is_pk=info.is_pk,
        target_bytes=int(target) if target.isdigit() else TARGET_BYTES,
        groups={str(b): file_id for b, file_id in file_groups(ground, info).items()} if info.is_pk else {},
    )


def file_groups(ground: HudiGround, info: TableInfo) -> dict[Bucket, str]:
    """Returns the file group of each bucket of a PK table that has one."""
    files = ground.files_at(ground.timeline.head)
    buckets = ((f.bucket(info.descriptor.partition_keys, is_pk=True), f.file_id) for f in files)
    return {bucket: file_id for bucket, file_id in buckets if bucket is not None}


def check_properties(ground: HudiGround) -> None:
    """Raises `LakeSchemaBroken`."""
    if due := wrong_properties(ground.properties):
        raise LakeSchemaBroken(table=ground.table.name, diff="; ".join(spell_properties(ground.properties, due)))


def _live(ground: HudiGround) -> dict[str, SeenFile]:
    head = ground.timeline.head
    return {s.file.path: s for s in ground.seen if head is not None and s.is_in(head.completed)}


def _groups_of(group: HudiRewrittenGroup, live: Mapping[str, SeenFile]) -> set[GroupId]:
    return {live[path].file.group for path in group.inputs if path in live}


def _is_whole(group: HudiRewrittenGroup, live: Mapping[str, SeenFile]) -> bool:
    """Whether every input is live, and every change of its file groups is either an input or later than the new base
    file. A removed group takes all its files with it."""
    inputs = set(group.inputs)
    if not inputs <= set(live):
        return False
    groups = _groups_of(group, live)
    others = [s for path, s in live.items() if path not in inputs and s.file.group in groups]
    return not any(group.file is None or not s.file.is_log or s.since <= group.instant for s in others)
