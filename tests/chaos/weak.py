# SPDX-License-Identifier: Apache-2.0
"""Protections of the round protocol switched off, by subclasses that only these tests use: a trace must then
go wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import SetSnapshotRefUpdate

from lakeward.changelog import Fold
from lakeward.errors import CommitUnknown
from lakeward.lake.core.change import CommitChange
from lakeward.lake.core.committer import CoreCommitter
from lakeward.lake.core.history import OwnHistory
from lakeward.lake.iceberg.commit.ground import IcebergGround
from lakeward.lake.iceberg.commit.request import CommitRequest
from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.datafile.result import RewrittenGroup
from lakeward.lake.iceberg.files import open_table
from lakeward.lake.iceberg.log import IcebergSnapshotLog
from lakeward.lake.iceberg.maintenance import IcebergLakeMaintenance
from lakeward.lake.iceberg.meta.summary import Reconciled, SummaryReader, reconcile, summary_of
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.lake.iceberg.reader import IcebergLakeReader
from lakeward.lake.orphans import OrphanRemoval
from lakeward.model import (
    Bucket,
    Intent,
    LakeBase,
    LogSplit,
    OffsetMap,
    OffsetSet,
    RoundId,
    SideName,
    Split,
    TableId,
    TableInfo,
    TablePath,
)
from lakeward.protocol.heartbeat import CommitAnswer, CommitReport, Committed, LeaseCheck, LeaseVerdict
from lakeward.spi import (
    ROUND_KEY,
    TABLE_ID_KEY,
    TAG,
    CommitProperties,
    Committable,
    CoordinatorClient,
    IntentStore,
    LakeSnapshot,
    Precondition,
    PreparedRewrite,
    Renewal,
    RewriteResult,
    next_offset,
)
from lakeward.tiering.round.prefix import KeptPrefix
from lakeward.tiering.round.round import Round
from lakeward.tiering.work.control import RoundControl
from lakeward.tiering.work.outcome import WriteOutcome
from lakeward.tiering.write import splitwrite
from lakeward.tiering.write.logread import LogSource
from lakeward.tiering.write.splitwrite import SplitWriter, _Written
from tests.kit.inprocess import InProcessLakeward, InProcessPlugin

OF_SUMMARIES = frozenset({"any_offsets", "any_token"})
OF_REQUESTS = frozenset({"exact_head", "assert_tag", "tag"})


@dataclass(frozen=True)
class Weak:
    """Names of the model's rules that are off."""

    flags: frozenset[str] = frozenset()

    def off(self, rule: str) -> bool:
        return rule in self.flags

    @property
    def any(self) -> bool:
        return bool(self.flags)

    def hold(self, real: Callable[[], AbstractContextManager[bool]]) -> Callable[[], AbstractContextManager[bool]]:
        return _held_anyway if self.off("fence_idle") else real

    def adopt(self, real: Callable[[LakeBase], None]) -> Callable[[LakeBase], None]:
        return (lambda _base: None) if self.off("fence_adopts") else real

    def intents(self, real: IntentStore) -> IntentStore:
        return ForgetfulIntents(real) if self.off("keep_intent") else real


@contextmanager
def _held_anyway() -> Iterator[bool]:
    yield True


class ForgetfulIntents(IntentStore):
    """Orphan removal that served an intent closes it."""

    def __init__(self, real: IntentStore) -> None:
        self._real = real

    def open_intents(self, table_id: TableId) -> Sequence[Intent]:
        found = self._real.open_intents(table_id)
        for intent in found:
            self._real.forget(intent.round_id)
        return found

    def record(self, intent: Intent) -> None:
        self._real.record(intent)

    def abandon(self, round_id: RoundId) -> None:
        self._real.abandon(round_id)

    def forget(self, round_id: RoundId) -> None:
        self._real.forget(round_id)


class WeakStorage(IcebergLakeStorage):
    def __init__(self, real: IcebergLakeStorage, weak: Weak) -> None:
        super().__init__(real.connection)
        self._weak = weak
        self._planned: dict[str, LakeBase] = {}
        self.delayed: list[tuple[WeakCommitter, Committable, Precondition]] | None = None
        """Not None: the first commit request is kept here and travels until somebody delivers it."""

    def open_committer(self, table: TableInfo) -> WeakCommitter:
        made = WeakCommitter(self.connection, table, self._weak)
        made.storage = self
        return made

    def open_reader(self, table: TableInfo) -> IcebergLakeReader:
        return WeakReader(self.connection, table, self._weak, self._planned)

    def open_maintenance(self, table: TableInfo) -> IcebergLakeMaintenance:
        return WeakMaintenance(self.connection, table, self._weak)


class WeakSummaries(SummaryReader):
    """A Flink job's snapshots are no one's."""

    def owner(self, snapshot: Snapshot) -> str | None:
        return summary_of(snapshot).get(TABLE_ID_KEY)


class WeakLog(IcebergSnapshotLog):
    def __init__(self, connection: IcebergConnection, info: TableInfo, weak: Weak) -> None:
        self._weak = weak
        super().__init__(connection, info)

    def summaries(self, table: Table) -> SummaryReader:
        real = super().summaries(table)
        if not self._weak.off("any_offsets"):
            return real
        return WeakSummaries(real.table, real.table_id, table.io)

    def reconcile(self, table: Table) -> Reconciled:
        if self._weak.off("broken_chain"):
            return reconcile(table.metadata, self.summaries(table), lambda _head, _tagged: False)
        return super().reconcile(table)

    def own_history(self, ground: IcebergGround) -> OwnHistory:
        """A Flink job's snapshot changes no token: the newest round's id, or none, is the token still."""
        own = super().own_history(ground)
        if not self._weak.off("any_token") or own.stands_on is None or ROUND_KEY in own.stands_on.keys:
            return own
        rounds = [summary_of(s).get(ROUND_KEY) for s in ground.table.metadata.snapshots]
        token = next((r for r in reversed(rounds) if r), None)
        keys = {**own.stands_on.keys, ROUND_KEY: token}
        return replace(own, stands_on=replace(own.stands_on, keys=keys))  # type: ignore[arg-type]

    def send(self, table: Table, request: CommitRequest) -> TableMetadata:
        if not self._weak.flags & OF_REQUESTS:
            return super().send(table, request)
        requirements = [] if self._weak.off("exact_head") else list(request.requirements)
        if self._weak.flags & {"assert_tag", "tag"}:
            requirements = [r for r in requirements if getattr(r, "ref", None) != TAG]
        updates = request.updates
        if self._weak.off("tag"):
            updates = tuple(u for u in updates if not (isinstance(u, SetSnapshotRefUpdate) and u.ref_name == TAG))
        fresh = self._connection.load(self._info.path)
        number = fresh.metadata.next_sequence_number()
        updates = tuple(_renumbered(u, number) for u in updates)
        self._connection.catalog.commit_table(fresh, tuple(requirements), updates)
        return fresh.metadata


class WeakReader(IcebergLakeReader):
    def __init__(
        self, connection: IcebergConnection, table: TableInfo, weak: Weak, planned: dict[str, LakeBase]
    ) -> None:
        super().__init__(connection, table, WeakLog(connection, table, weak))
        self._weak, self._planned = weak, planned

    def load_base(self) -> LakeBase:
        base = super().load_base_as_is() if self._weak.off("fence_stops") else super().load_base()
        first = self._planned.setdefault("base", base)
        if self._weak.off("token_check"):
            base = replace(base, token=first.token)
        return replace(base, offsets=first.offsets) if self._weak.off("offset_check") else base


class WeakCommitter(CoreCommitter[IcebergGround]):
    def __init__(self, connection: IcebergConnection, table: TableInfo, weak: Weak) -> None:
        log = WeakLog(connection, table, Weak(weak.flags & (OF_SUMMARIES | OF_REQUESTS)))
        super().__init__(open_table(connection, log, table))
        self._weak, self._prepared = weak, 0

    def _fresh(self, base: LakeBase, round_id: RoundId, *, as_is: bool) -> IcebergGround:
        if not self._weak.flags & {"token_check", "offset_check"}:
            return super()._fresh(base, round_id, as_is=as_is or self._weak.off("fence_stops"))
        return self._log.load()

    def build(
        self, ground: IcebergGround, base: LakeBase, properties: CommitProperties, change: CommitChange, **more: Any
    ) -> Committable:
        if self._weak.flags & {"token_check", "offset_check"}:
            base = replace(base, fence=ground.base.fence)
        return super().build(ground, base, properties, change, **more)

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
        """Without resolving again, positions in files that another engine has replaced delete nothing."""
        self._prepared += 1
        stale = self._weak.off("re_resolve") and self._prepared > 1
        if self._weak.off("resync_marked"):
            properties = replace(properties, is_resyncing=False)
        return super().prepare(results, {} if stale else replaced, base, properties, renewal, fence_step=fence_step)

    def prepare_rewrite(
        self,
        results: Sequence[RewriteResult],
        base: LakeBase,
        round_id: RoundId,
        extra: Mapping[str, str] | None = None,
    ) -> PreparedRewrite:
        results = [_forgetting_deletes(r) for r in results] if self._weak.off("carry_over") else results
        return super().prepare_rewrite(results, base, round_id, extra)

    storage: WeakStorage | None = None

    def commit(self, committable: Committable, precondition: Precondition) -> LakeSnapshot:
        delayed = None if self.storage is None else self.storage.delayed
        if delayed is not None and not delayed:
            delayed.append((self, committable, precondition))
            raise CommitUnknown(
                table=str(self._info.path), round_id="delayed", reason="the request is still on its way"
            )
        return super().commit(committable, precondition)

    def find(self, round_id: RoundId) -> LakeSnapshot | None:
        return None if self._weak.off("find_first") else super().find(round_id)


def _forgetting_deletes(result: RewriteResult) -> RewriteResult:
    """As if every row that was deleted since had been deleted when it was read: no delete goes along."""
    rewritten = RewrittenGroup.from_bytes(result.payload)
    counts = {file.path: file.record_count for file in result.group.files}
    ranks = tuple(replace(r, gone=OffsetSet(np.arange(counts[r.path]))) for r in rewritten.ranks)
    return replace(result, payload=replace(rewritten, ranks=ranks).to_bytes())


def _renumbered(update: Any, number: int) -> Any:
    """Iceberg's catalogs take a snapshot only with a sequence number above the last, which refuses many a stale commit
    by itself.
    """
    if not hasattr(update, "snapshot"):
        return update
    return update.model_copy(update={"snapshot": update.snapshot.model_copy(update={"sequence_number": number})})


class WeakMaintenance(IcebergLakeMaintenance):
    """References are read once, before the fence, where listing does not wait for it."""

    def __init__(self, connection: IcebergConnection, table: TableInfo, weak: Weak) -> None:
        super().__init__(connection, table)
        self._weak = weak
        self._used: set[str] | None = None

    def _open_committer(self) -> CoreCommitter[IcebergGround]:
        if self._weak.off("fence_stops"):
            return WeakCommitter(self._connection, self._info, self._weak)
        return super()._open_committer()

    def references(self) -> set[str]:
        if not self._weak.off("fence_then_list"):
            return super().references()
        if self._used is None:
            self._used = super().references()
        return self._used


class WeakOrphanRemoval(OrphanRemoval):
    weak: Weak = Weak()

    def _fence_unless(self, is_enough: Callable[[LakeBase], bool]) -> tuple[LakeBase, bool]:
        if self.weak.off("fence"):
            base = self._reader.load_base()
            return replace(base, token="not fenced", fence=base.fence + 1), False
        return super()._fence_unless(is_enough)


class WeakCoordinator:
    """What is not weakened is the real one's."""

    def __init__(self, world: InProcessLakeward, weak: Weak) -> None:
        self.real, self.weak = world.coordinator, weak

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def knows_round(self, table_id: TableId, round_id: RoundId, side: SideName) -> bool:
        if self.weak.flags & {"find_first", "find_ledger"}:
            return False
        return self.real.knows_round(table_id, round_id, side)

    def committed(self, path: TablePath, side: SideName) -> Committed:
        """Without `never_behind` it does not say what it knows."""
        known = self.real.committed(path, side)
        return replace(known, offsets=OffsetMap(), token=None) if self.weak.off("never_behind") else known

    def check_lease(self, check: LeaseCheck) -> LeaseVerdict:
        verdict = self.real.check_lease(check)
        return replace(verdict, held=True) if self.weak.off("lease_check") else verdict

    def commit(self, report: CommitReport) -> CommitAnswer:
        if self.weak.off("resync_remains"):
            report = replace(report, resyncing=False, to_compare=())
        answer = self.real.commit(report)
        if self.weak.off("coord_monotone"):
            self.real.board.tables[report.table_id].first.committed = report.offsets
        return answer


class WeakPlugin(InProcessPlugin):
    def __init__(self, world: InProcessLakeward, weak: Weak) -> None:
        super().__init__(world)
        self._world, self._weak = world, weak

    def coordinator(self) -> CoordinatorClient:
        return cast(CoordinatorClient, WeakCoordinator(self._world, self._weak))


class WeakControl(RoundControl):
    """Unknown and not found counts as lost: nobody waits to send the request again."""

    def pause(self, seconds: float) -> bool:
        return False


class WeakSplitWriter(SplitWriter):
    """The stop is decided in pass two: by then the fold knows what records above it replaced."""

    def _write_folded(self, split: LogSplit, reader: LogSource) -> _Written:
        fold = Fold(split.start, split.stop)
        for batch in reader.read(split.start, split.stop):
            fold.see(batch)
        fold.seal()
        for batch in reader.read(split.start, split.stop):
            self._write(fold.live(batch))
            if self._signal.is_due():
                return _Written(next_offset(batch), fold.replaced_below)
        return _Written(split.stop, fold.replaced_below)


@contextmanager
def split_writers(weak: Weak) -> Iterator[None]:
    """Splits are written by a weak writer while this lasts, in this process."""
    real = splitwrite.SplitWriter
    if weak.off("trim_short"):
        splitwrite.SplitWriter = WeakSplitWriter  # type: ignore[misc]
    try:
        yield
    finally:
        splitwrite.SplitWriter = real  # type: ignore[misc]


@dataclass(kw_only=True)
class WeakRound(Round):
    """Every finished sub-split counts, whether those before it did or not."""

    seen: dict[Split, WriteOutcome] = field(default_factory=dict)

    def _dispatch(self, order: Any, splits: Any, ground: Any) -> dict[Split, WriteOutcome]:
        found = super()._dispatch(order, splits, ground)
        self.seen |= found
        return found

    def _write(self, ground: Any, order: Any, committer: Any) -> KeptPrefix:
        super()._write(ground, order, committer)
        done = tuple(o for s, o in sorted(self.seen.items(), key=lambda i: i[0].start) if o.is_ok)
        return KeptPrefix(outcomes=done, offsets={o.split.bucket: o.stop for o in done}, is_whole=False)
