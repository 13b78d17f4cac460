# SPDX-License-Identifier: Apache-2.0
"""Commits of one Hudi table: an instant of the timeline that is completed on exactly the head it was prepared on."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from lakeward.errors import (
    CommitConflict,
    CommitUnknown,
    FaultInjected,
    InvalidRequest,
    LakeSchemaBroken,
    LakeUnavailable,
)
from lakeward.lake.conflict import describe_conflict
from lakeward.lake.hudi.commit.expiry import plan_expiry
from lakeward.lake.hudi.commit.foreignrows import find_foreign_rows, foreign_files
from lakeward.lake.hudi.commit.landing import COMPACTION, NewInstant, head_name, land
from lakeward.lake.hudi.commit.reconcile import HudiGround, describe, load_base
from lakeward.lake.hudi.commit.restore import write_restored
from lakeward.lake.hudi.meta.columns import encode_columns, file_schema, to_avro_schema
from lakeward.lake.hudi.meta.failures import lake_errors
from lakeward.lake.hudi.meta.properties import record_key_fields, spell_properties, wrong_properties
from lakeward.lake.hudi.meta.slices import GroupId, SeenFile
from lakeward.lake.hudi.meta.table import HudiTable
from lakeward.lake.hudi.meta.timeline import new_instant
from lakeward.lake.hudi.rewrite import HudiRewrittenGroup
from lakeward.lake.hudi.scan.rows import HudiRows, base_facts
from lakeward.lake.hudi.writer import TARGET_BYTES, TARGET_KEY, HudiWriteHandle, HudiWriteResult, StagedFile
from lakeward.model.bucket import Bucket
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId, TableId
from lakeward.model.offsetset import OffsetSet
from lakeward.model.round import LakeBase
from lakeward.model.table import TableInfo
from lakeward.spi.commit import CommitProperties, Committable, Precondition, Renewal
from lakeward.spi.lake import LakeCommitter
from lakeward.spi.lakefile import LakeSnapshot
from lakeward.spi.rewrite import PreparedRewrite, RewriteResult, rows_after
from lakeward.spi.snapshotkeys import TABLE_ID_KEY, encode_all_keys, is_of


class HudiLakeCommitter(LakeCommitter):
    def __init__(self, table: HudiTable, info: TableInfo) -> None:
        self._table, self._info = table, info

    def begin(self, round_id: RoundId, base: LakeBase | None = None) -> bytes:
        return self._handle(self._ground(base), round_id).to_bytes()

    def prefix(self, round_id: RoundId) -> str:
        return f"{self._table.staging(round_id)}/"

    def prepare(
        self,
        results: Sequence[bytes],
        replaced: Mapping[Bucket, OffsetSet],
        base: LakeBase,
        properties: CommitProperties,
        renewal: Renewal | None = None,
        *,
        fence_step: int = 0,
    ) -> Committable:
        if any(replaced.values()):
            raise InvalidRequest(what=f"replaced rows of {self._table.name}", reason="this lake merges by key")
        if back := properties.breach(base):
            raise CommitConflict(table=self._table.name, round_id=properties.round_id, reason=back, lost=True)
        ground = self._fresh(base, properties.round_id)
        written = [HudiWriteResult.from_bytes(data) for data in results]
        self._check_groups(ground, written, properties.round_id)
        fault_point("lake.before-resolve", round_id=properties.round_id)
        rows = HudiRows(self._table.files, self._table.name, file_schema(ground.columns, ""))
        is_resync = properties.generation > base.generation
        restored = find_foreign_rows(self._info, ground, renewal, rows, is_resync=is_resync)
        requested = written[0].instant if written else new_instant()
        first: list[StagedFile] = []
        if restored:
            handle = self._handle(ground, properties.round_id, requested)
            with lake_errors(self._table.name, "write rows back to"):
                first = write_restored(self._table.files, handle, restored)
        files = (*first, *(f for r in written for f in r.files))
        added = sum(f.rows for r in written for f in r.files)
        total = None if self._info.is_pk else self._count(ground) + added
        keys = encode_all_keys(self._info.table_id, base, properties, fence_step=fence_step, rows=total)
        is_pk = self._info.is_pk
        new = self._new(
            ground,
            properties.round_id,
            requested=requested,
            action="deltacommit" if is_pk else "commit",
            operation="UPSERT" if is_pk else "BULK_INSERT",
            keys=keys,
            files=files,
        )
        return Committable(
            base=base,
            payload=new.to_bytes(),
            rows=added,
            deletes=sum(f.deletes for f in files),
            files=len(files),
            bytes_written=sum(f.size_bytes for f in files),
            expirable=tuple(plan_expiry(ground, self._table.expired(), _now_ms(), coming=1)),
        )

    def prepare_rewrite(
        self,
        results: Sequence[RewriteResult],
        base: LakeBase,
        round_id: RoundId,
        extra: Mapping[str, str] | None = None,
    ) -> PreparedRewrite:
        ground = self._fresh(base, round_id)
        head = ground.timeline.head
        live = {s.file.path: s for s in ground.seen if head is not None and s.is_in(head.completed)}
        if self._info.is_pk and foreign_files(ground):  # the next round looks for them since our newest commit
            return PreparedRewrite(committable=None, left_out=tuple(r.group.index for r in results))
        groups = [(r, HudiRewrittenGroup.from_bytes(r.payload)) for r in results]
        whole, taken = list[tuple[RewriteResult, HudiRewrittenGroup]](), set[GroupId]()
        for result, group in groups:
            own = _groups_of(group, live)
            if _is_whole(group, live) and not own & taken:
                whole.append((result, group))
                taken = taken | own
        left_out = tuple(r.group.index for r, g in groups if (r, g) not in whole)
        if not whole or base.token is None:
            return PreparedRewrite(committable=None, left_out=left_out)
        gone: dict[str, list[str]] = {}
        for _, group in whole:
            if group.file is None or not self._info.is_pk:
                for partition, file_id in sorted(_groups_of(group, live)):
                    gone.setdefault(partition, []).append(file_id)
        files = tuple(g.file for _, g in whole if g.file is not None)
        is_dropped = all(r.group.is_dropped for r, _ in whole)
        rows = rows_after([r for r, _ in whole], base.lake_rows)
        new = self._new(
            ground,
            round_id,
            requested=max(g.instant for _, g in whole),
            action="replacecommit" if gone else COMPACTION,
            operation="DELETE_PARTITION" if is_dropped else "CLUSTER" if gone else "COMPACT",
            keys=encode_all_keys(
                self._info.table_id, base, CommitProperties.rewrite(base, extra), rows=rows, rewrite_id=round_id
            ),
            files=files,
            replaced={k: tuple(v) for k, v in gone.items()} if gone else None,
        )
        committable = Committable(
            base=base,
            payload=new.to_bytes(),
            rows=sum(r.rows for r, _ in whole),
            files=len(files),
            bytes_written=sum(f.size_bytes for f in files),
        )
        return PreparedRewrite(committable=committable, left_out=left_out)

    def commit(self, committable: Committable, precondition: Precondition) -> LakeSnapshot:
        new = NewInstant.from_bytes(committable.payload)
        round_id = RoundId(new.round_id)
        if broken := precondition.breach(committable.base, TableId(new.keys[TABLE_ID_KEY])):
            raise CommitConflict(table=self._table.name, round_id=round_id, reason=broken, lost=True)
        if head_name(HudiGround.load(self._table).timeline) != new.head:
            raise self._conflict(round_id, "the table moved on since the base was read", precondition)
        try:
            fault_point("lake.before-commit", round_id=round_id)
            with self._table.lock():
                landed = land(self._table, new, committable.expire)
            fault_point("lake.after-commit", round_id=round_id)
        except (FaultInjected, LakeUnavailable, OSError) as error:
            raise CommitUnknown(table=self._table.name, round_id=round_id, reason=str(error)) from error
        if isinstance(landed, str):
            raise self._conflict(round_id, landed, precondition)
        self._clear(new)
        ground = HudiGround.load(self._table)
        return describe(ground, landed)

    def find(self, round_id: RoundId) -> LakeSnapshot | None:
        """A rewrite copies the id of the round before it: the oldest of them is the round's own."""
        ground, landed = HudiGround.load(self._table), None
        for instant in reversed(ground.timeline.snapshots):
            keys = ground.keys_of(instant)
            if is_of(keys, round_id):
                landed = instant
            elif landed is not None and keys:
                break
        return None if landed is None else describe(ground, landed)

    def _handle(self, ground: HudiGround, round_id: RoundId, requested: str | None = None) -> HudiWriteHandle:
        self._check_properties(ground)
        descriptor, name = self._info.descriptor, self._info.path.table
        target = ground.properties.get(TARGET_KEY, "")
        newest = max((i.completed for i in ground.timeline.instants), default="")
        return HudiWriteHandle(
            staging=self._table.staging(round_id),
            instant=requested or new_instant(newest),
            columns=encode_columns(ground.columns),
            avro=to_avro_schema(ground.columns, name, with_meta=True),
            partition_keys=tuple(descriptor.partition_keys),
            key_fields=record_key_fields(descriptor),
            is_pk=self._info.is_pk,
            target_bytes=int(target) if target.isdigit() else TARGET_BYTES,
            groups={str(b): file_id for b, file_id in self._buckets(ground).items()} if self._info.is_pk else {},
        )

    def _buckets(self, ground: HudiGround) -> dict[Bucket, str]:
        """Of a PK table: the file group of each bucket that has one."""
        keys = self._info.descriptor.partition_keys
        found = {}
        for file in ground.files_at(ground.timeline.head):
            bucket = file.bucket(keys, is_pk=True)
            if bucket is not None:
                found[bucket] = file.file_id
        return found

    def _check_groups(self, ground: HudiGround, written: Sequence[HudiWriteResult], round_id: RoundId) -> None:
        """A bucket whose file group came or went since the round began: its files have the wrong name."""
        if not self._info.is_pk or not written:
            return
        there = self._buckets(ground)
        for result in written:
            if there.get(Bucket.parse(result.bucket), "") != result.group:
                reason = f"others took out or made the file group of bucket {result.bucket} since the round began"
                raise CommitConflict(table=self._table.name, round_id=round_id, reason=reason, lost=True)

    def _new(
        self,
        ground: HudiGround,
        round_id: RoundId,
        *,
        requested: str,
        action: str,
        operation: str,
        keys: dict[str, str],
        files: tuple[StagedFile, ...],
        replaced: dict[str, tuple[str, ...]] | None = None,
    ) -> NewInstant:
        return NewInstant(
            round_id=round_id,
            head=head_name(ground.timeline),
            requested=requested,
            action=action,
            operation=operation,
            schema=to_avro_schema(ground.columns, self._info.path.table),
            keys=keys,
            files=files,
            replaced=replaced,
        )

    def _count(self, ground: HudiGround) -> int:
        """Rows of a log table."""
        files = ground.files_at(ground.timeline.head)
        return sum(base_facts(self._table.files, f, self._table.name).rows for f in files if not f.is_log)

    def _ground(self, base: LakeBase | None) -> HudiGround:
        loaded = None if base is None else base.loaded
        return loaded if isinstance(loaded, HudiGround) else HudiGround.load(self._table)

    def _fresh(self, base: LakeBase, round_id: RoundId) -> HudiGround:
        """As the table is now. Raises `CommitConflict` if its head is not the base's."""
        ground = HudiGround.load(self._table)
        if base.head != ground.head_id:
            on_base = Precondition.on(self._info.table_id, base)
            raise self._conflict(round_id, "the table moved on since the base was read", on_base)
        self._check_properties(ground)
        return ground

    def _check_properties(self, ground: HudiGround) -> None:
        """Raises `LakeSchemaBroken`."""
        if due := wrong_properties(ground.properties):
            raise LakeSchemaBroken(table=self._table.name, diff="; ".join(spell_properties(ground.properties, due)))

    def _conflict(self, round_id: RoundId, reason: str, precondition: Precondition) -> CommitConflict:
        def load() -> LakeBase:
            return load_base(HudiGround.load(self._table), self._info.table_id)

        return describe_conflict(self._table.name, round_id, reason, precondition, load)

    def _clear(self, new: NewInstant) -> None:
        """The round's folder, once nothing is left in it."""
        for folder in {os.path.dirname(f.staged) for f in new.files}:
            with suppress(OSError):
                os.rmdir(folder)


def _groups_of(group: HudiRewrittenGroup, live: Mapping[str, SeenFile]) -> set[tuple[str, str]]:
    return {live[path].file.group for path in group.inputs if path in live}


def _is_whole(group: HudiRewrittenGroup, live: Mapping[str, SeenFile]) -> bool:
    """Is every input live, and every change of its file groups either in it or after the new base file? A group that
    goes takes all with it."""
    inputs = set(group.inputs)
    if not inputs <= set(live):
        return False
    groups = _groups_of(group, live)
    others = [s for path, s in live.items() if path not in inputs and s.file.group in groups]
    return not any(group.file is None or not s.file.is_log or s.since <= group.instant for s in others)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
