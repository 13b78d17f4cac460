# SPDX-License-Identifier: Apache-2.0
"""Commits of one table, for every format: prepared on a head, sent on exactly that head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic

from lakeward.errors import CommitConflict, CommitUnknown, FaultInjected, InvalidRequest, LakeUnavailable
from lakeward.lake.core.change import CommitChange, RoundWork
from lakeward.lake.core.history import LogSnapshot
from lakeward.lake.core.log import CommitRefused, G, HeadMoved, plan_expiry
from lakeward.lake.core.reconcile import describe, describe_conflict, find_round, load_base
from lakeward.lake.core.table import LakeTable
from lakeward.model import Bucket, LakeBase, OffsetSet, RoundId, TableId, fault_point
from lakeward.protocol.heartbeat import LeasedAnswer
from lakeward.spi import (
    TABLE_ID_KEY,
    CommitProperties,
    Committable,
    DeleteEncoding,
    LakeCommitter,
    LakeSnapshot,
    Precondition,
    PreparedRewrite,
    Renewal,
    RewriteResult,
    encode_all_keys,
    rows_after,
)

_EXPIRED_AT_ONCE = 200
"""The most snapshots that one commit removes: a round adds one, so that any backlog shrinks quickly."""


class CoreCommitter(LakeCommitter, Generic[G]):
    def __init__(self, table: LakeTable[G]) -> None:
        self._table, self._info, self._log = table, table.info, table.log

    def begin(self, round_id: RoundId, base: LakeBase | None = None) -> bytes:
        return self._table.files.handle(self._loaded(base), round_id)

    def prefix(self, round_id: RoundId) -> str:
        return self._table.files.prefix(round_id)

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
        if any(replaced.values()) and DeleteEncoding.POSITIONS not in self._table.encodings:
            raise InvalidRequest(what=f"replaced rows of {self._log.table}", reason="this lake merges by key")
        if back := properties.breach(base):
            raise CommitConflict(table=self._log.table, round_id=properties.round_id, reason=back, lost=True)
        work = RoundWork(
            results=results,
            replaced=replaced,
            renewal=renewal,
            base=base,
            properties=properties,
            is_fence=fence_step > 0,
        )
        ground = self._fresh(base, properties.round_id, as_is=work.is_resync)
        change = self._table.changes.plan_round(ground, work)
        return self.build(ground, base, properties, change, fence_step=fence_step)

    def prepare_rewrite(
        self,
        results: Sequence[RewriteResult],
        base: LakeBase,
        round_id: RoundId,
        extra: Mapping[str, str] | None = None,
    ) -> PreparedRewrite:
        ground = self._fresh(base, round_id, as_is=False)
        groups = self._table.changes.find_whole(ground, results)
        results_of_whole = [g.result for g in groups]
        left_out = tuple(r.group.index for r in results if r not in results_of_whole)
        if not results_of_whole or base.token is None:
            return PreparedRewrite(committable=None, left_out=left_out)
        change = self._table.changes.plan_rewrite(ground, groups, round_id)
        rows, properties = rows_after(results_of_whole, base.lake_rows), CommitProperties.rewrite(base, extra)
        committable = self.build(ground, base, properties, replace(change, total_rows=rows), rewrite_id=round_id)
        return PreparedRewrite(committable=committable, left_out=left_out, carried=change.deletes)

    def build(
        self,
        ground: G,
        base: LakeBase,
        properties: CommitProperties,
        change: CommitChange,
        *,
        fence_step: int = 0,
        rewrite_id: RoundId | None = None,
    ) -> Committable:
        """Builds the commit of a change on this ground."""
        keys: dict[str, str | None] = {
            **encode_all_keys(
                self._info.table_id,
                base,
                properties,
                fence_step=fence_step,
                rows=change.total_rows,
                rewrite_id=rewrite_id,
            ),
            **self._log.own_keys(ground, base, properties, change),
        }
        own_keys = {k: v for k, v in keys.items() if v is not None}
        retries, retry_s = self._log.retries(ground)
        return Committable(
            base=replace(base, loaded=ground),
            payload=self._log.encode(ground, rewrite_id or properties.round_id, own_keys, change),
            rows=change.rows,
            deletes=change.deletes,
            files=change.files,
            bytes_written=change.bytes_written,
            expirable=tuple(plan_expiry(self._log, ground, self._log.now_ms(), coming=1, most=_EXPIRED_AT_ONCE)),
            retries=retries,
            retry_s=retry_s,
        )

    def commit(self, committable: Committable, precondition: Precondition) -> LakeSnapshot:
        request = self._log.parse(committable.payload)
        round_id, table = request.round_id, self._log.table
        if broken := precondition.breach(committable.base, TableId(request.keys[TABLE_ID_KEY])):
            raise CommitConflict(table=table, round_id=round_id, reason=broken, lost=True)
        try:
            fault_point("lake.before-commit", round_id=round_id)
            landed, answer = self._append(request, committable)
            fault_point("lake.after-commit", round_id=round_id)
        except CommitRefused as refused:
            raise refused.error from refused.__cause__
        except HeadMoved as error:
            raise self._conflict(round_id, str(error), precondition) from error
        except (FaultInjected, LakeUnavailable, OSError) as error:
            raise CommitUnknown(table=table, round_id=round_id, reason=str(error)) from error
        self._log.settle(request)
        return replace(describe(self._log, landed), leased=answer)

    def _append(self, request: Any, committable: Committable) -> tuple[LogSnapshot, LeasedAnswer | None]:
        if committable.leased is None:
            return self._log.append(request, committable.base, committable.expire), None
        return self._log.append_leased(request, committable.base, committable.leased)

    @property
    def coordinator_id(self) -> str | None:
        return self._log.coordinator_id

    def find(self, round_id: RoundId) -> LakeSnapshot | None:
        landed = find_round(self._log, self._log.load(), round_id)
        return None if landed is None else describe(self._log, landed)

    def _loaded(self, base: LakeBase | None) -> G:
        loaded: Any = None if base is None else base.loaded
        return loaded if isinstance(loaded, self._log.ground_type) else self._log.load()

    def _fresh(self, base: LakeBase, round_id: RoundId, *, as_is: bool) -> G:
        """Loads the table again; columns or properties may have changed since the base was read. Raises
        `CommitConflict` if the head is not the base's. `as_is`: a resync may build on a table that someone rolled back.
        """
        ground = self._loaded(base)
        if not self._log.is_current(ground):
            ground = self._log.load()
        on_base = Precondition.on(self._info.table_id, base)
        if base.head != ground.head_id:
            raise self._conflict(round_id, f"the head is {ground.head_id}, the base was read at {base.head}", on_base)
        if ground is not base.loaded:
            broken = on_base.breach(load_base(self._log, ground, self._info.table_id, as_is=as_is))
            if broken is not None:
                raise CommitConflict(table=self._log.table, round_id=round_id, reason=broken, lost=True)
        return ground

    def _conflict(self, round_id: RoundId, reason: str, precondition: Precondition) -> CommitConflict:
        def load() -> LakeBase:
            return load_base(self._log, self._log.load(), self._info.table_id)

        return describe_conflict(self._log.table, round_id, reason, precondition, load)
