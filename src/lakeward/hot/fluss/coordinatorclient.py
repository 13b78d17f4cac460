# SPDX-License-Identifier: Apache-2.0
"""Fluss's coordinator as `spi.coordinator.CoordinatorClient`: its heartbeat, its two-step lake commit, and the lake for
the rest.

Fluss keeps no ledger and no intents: the lake's summaries are the ledger, intents are objects beside the lake table.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lakeward.errors import LakewardError
from lakeward.hot.fluss.failures import Code, fluss_code_of, to_error
from lakeward.hot.fluss.handout.handouts import HandOuts
from lakeward.hot.fluss.handout.heldnote import HeldNote
from lakeward.hot.fluss.handout.standing import StandingWatch
from lakeward.hot.fluss.knowntables import KnownTables
from lakeward.hot.fluss.lakeends import bucket_ends, gone_ends, named_offsets
from lakeward.hot.fluss.lakehistory import Registered, find_newest, read_ledger
from lakeward.hot.fluss.logmarks import (
    ACCEPT_VARIABLE,
    MARKS_KEY,
    LastBatch,
    check_marks,
    known_marks,
    marks_of,
    to_text,
)
from lakeward.hot.fluss.overlaps import check_counts, check_overlap, flink_snapshots
from lakeward.hot.fluss.readplan import LakeOf, load_head, plan_read
from lakeward.hot.fluss.store import FlussStore
from lakeward.hot.fluss.wire.messages import COMMIT_LAKE, LAKE_SNAPSHOT, PREPARE_LAKE, Api, Message
from lakeward.hot.fluss.wire.servers import FlussServers, path_message
from lakeward.model import (
    DEFAULT_SIDE,
    TIER,
    Bucket,
    Clock,
    Intent,
    LeaseId,
    LedgerEntry,
    LedgerKind,
    RoundId,
    SideName,
    SnapshotId,
    SystemClock,
    TableId,
    TableInfo,
    TablePath,
    fault_point,
)
from lakeward.protocol.heartbeat import (
    CommitAnswer,
    CommitReport,
    Committed,
    HandedOut,
    HeartbeatAnswer,
    HeartbeatRequest,
    LeaseCheck,
    LeaseVerdict,
)
from lakeward.protocol.readplan import ReadPlan
from lakeward.spi import OFFSETS_KEY, CoordinatorClient, IntentStore, LakeReader, LakeSnapshot, SupportsIntents

log = logging.getLogger("lakeward.fluss")

_KEPT = 1_000
_KEEP_ALL = -1
_LOST_OFFSETS = "lake table snapshot"
"""In the words of Fluss's error when the file of a table's offsets is gone."""

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True)
class _Prepared:
    """A round's commit as Fluss knows of it: the file of its offsets, and what lies before them in the log."""

    offsets: Mapping[Bucket, int]
    path: str
    last: Mapping[Bucket, LastBatch]


_Registration = tuple[Registered, Mapping[Bucket, int], Mapping[Bucket, int]]


class HistoryChecks:
    """Checks whether the lake's snapshots and the log still agree."""

    def __init__(self, store: FlussStore) -> None:
        self._store = store
        self._checked: OrderedDict[SnapshotId, None] = OrderedDict()
        self._lock = threading.Lock()

    def check_overlap(self, table: TableInfo, reader: LakeReader, snapshots: Sequence[LakeSnapshot]) -> None:
        """Raises `LakeOverlap`. Costs nothing while no snapshot of the Flink job is new."""
        unseen = {s.snapshot_id for s in snapshots if s.round_id is None and s.snapshot_id not in self._checked}
        head = load_head(reader) if unseen else None
        if head is None:
            return
        ours, above = flink_snapshots(snapshots, head.snapshot_id)
        if ours is not None and above and not reader.has_offsets:
            check_counts(str(table.path), reader.files, ours, above, head, is_pk=table.is_pk)
        for late in above if ours is not None and reader.has_offsets else ():
            if late.snapshot_id in unseen and ours is not None:
                check_overlap(str(table.path), reader.files, ours, late)
        for snapshot_id in unseen:
            _keep(self._checked, snapshot_id, None, self._lock)

    def check_log(self, table: TableInfo, snapshots: Sequence[LakeSnapshot]) -> None:
        """Raises `LogRewritten`. One small request for each bucket with a mark, all at once."""
        known = known_marks(table, snapshots)
        if known:
            check_marks(table, known, self._store.marks_now(table, {b: offset for b, (offset, _) in known.items()}))


class FlussCoordinatorClient(CoordinatorClient):
    """Safe to use from several threads. What it remembers only saves calls: another process finds the same in
    the lake.
    """

    def __init__(
        self,
        servers: FlussServers,
        store: FlussStore,
        lake_of: LakeOf,
        clock: Clock | None = None,
        note: HeldNote | None = None,
    ) -> None:
        self.servers, self._store, self._lake_of = servers, store, lake_of
        self._clock: Clock = clock or SystemClock()
        self._tables = KnownTables(store)
        self._hand_outs = HandOuts(servers, store, lake_of, self._tables, self._clock, note)
        self._prepared: OrderedDict[RoundId, _Prepared] = OrderedDict()
        self._intents: OrderedDict[RoundId, TableInfo] = OrderedDict()
        self._history = HistoryChecks(store)
        self._lock = threading.Lock()

    # ---- heartbeat -------------------------------------------------------------------------------------------------
    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        return self._hand_outs.heartbeat(request)

    def check_lease(self, check: LeaseCheck) -> LeaseVerdict:
        return self._hand_outs.check_lease(check)

    def watch(self, table: TableInfo) -> StandingWatch:
        """For who wants the table in the lake before its time."""
        return self._hand_outs.watch(table)

    def take(self, path: TablePath) -> HandedOut | None:
        """This one table, if it is due. Others that come before it are given back."""
        return self._hand_outs.take(path)

    # ---- commit ----------------------------------------------------------------------------------------------------
    def committed(self, path: TablePath, side: SideName | None = None) -> Committed:
        """The state of the lake that Fluss knows; the token is that of the snapshot it names, if it still exists."""
        table = self._tables.load(path)
        answer = self._known(table)
        if answer is None:
            return Committed(table_id=table.table_id)
        offsets = named_offsets(table, answer)
        named = SnapshotId(str(answer["snapshot_id"]))
        reader = self._reader(table)
        snapshots = reader.snapshots()
        self._history.check_overlap(table, reader, snapshots)
        if _is_accepted(
            table
        ):  # as if Fluss knew nothing: it is told what the lake holds, and the round goes on from there
            return Committed(table_id=table.table_id)
        self._history.check_log(table, snapshots)
        # By its summary alone: the file with the Flink job's offsets may be gone by now.
        snapshot = next((s for s in snapshots if s.snapshot_id == named), None)
        if snapshot is None:
            return Committed(table_id=table.table_id, offsets=offsets)
        return Committed(
            table_id=table.table_id,
            offsets=offsets,
            token=snapshot.round_id or snapshot.snapshot_id,
            generation=snapshot.generation,
        )

    def known(self, path: TablePath) -> Committed:
        """The state of the lake that Fluss knows, without reading the lake."""
        table = self._tables.load(path)
        answer = self._known(table)
        if answer is None:
            return Committed(table_id=table.table_id)
        offsets = named_offsets(table, answer)
        return Committed(table_id=table.table_id, offsets=offsets, token=str(answer["snapshot_id"]))

    def _known(self, table: TableInfo) -> Message | None:
        """The lake snapshot that Fluss knows. None: it knows none, or has lost the file of its offsets: the lake has
        them too.
        """
        try:
            return self.servers.call_coordinator(LAKE_SNAPSHOT, {"path": _path(table)})
        except LakewardError as error:
            if fluss_code_of(error) == Code.LAKE_SNAPSHOT_NOT_FOUND:
                return None
            if fluss_code_of(error) == Code.UNKNOWN and _LOST_OFFSETS in str(error):
                log.warning(
                    "%s: Fluss cannot read its own offsets of the lake; they are written anew from the lake: %s",
                    table.path,
                    error,
                )
                return None
            raise

    def prepare_commit(self, table: TableInfo, round_id: RoundId, offsets: Mapping[Bucket, int]) -> Mapping[str, str]:
        """Fluss writes the offsets, laid over those it knows, to a file; the snapshot carries the file's path."""
        with self._lock:
            known = self._prepared.get(round_id)
        if known is None or known.offsets != offsets:
            last = self._store.last_batches(table, offsets)
            known = _Prepared(dict(offsets), self._write_offsets(table, offsets), last)
            _keep(self._prepared, round_id, known, self._lock)
        return {OFFSETS_KEY: known.path, MARKS_KEY: to_text(table, marks_of(known.last))}

    def prepare_rewrite(self, table: TableInfo, round_id: RoundId, offsets: Mapping[Bucket, int]) -> Mapping[str, str]:
        """As the Flink job's rewrites do, a compaction's snapshot has the offsets that were there before, in a file of
        its own: Fluss deletes that of the snapshot whose place it takes."""
        with self._lock:
            known = self._prepared.get(round_id)
        if known is None or known.offsets != offsets:
            known = _Prepared(dict(offsets), self._write_offsets(table, offsets, anew=True), {})
            _keep(self._prepared, round_id, known, self._lock)
        return {OFFSETS_KEY: known.path}

    def _write_offsets(self, table: TableInfo, offsets: Mapping[Bucket, int], *, anew: bool = False) -> str:
        """`anew`: these replace all stored offsets, including those of dropped partitions; Fluss's are not read."""
        ends = [*bucket_ends(table, offsets), *(gone_ends(offsets) if anew else ())]
        entry = {"table_id": int(table.table_id), "path": _path(table), "buckets": ends}
        (answer,) = self._tiering(PREPARE_LAKE, {"tables": [entry], "ignore_previous": 1 if anew else None})
        path: str = answer["path"]
        return path

    def commit(self, report: CommitReport) -> CommitAnswer:
        """Tells Fluss of a lake snapshot, unless it knows it, or main has moved on: who moved it tells. Told again,
        Fluss would delete the offsets file of the entry that the new one replaces, which is the very same file; told
        late, that of a newer snapshot."""
        table = self._tables.load_by_id(report.table_id)
        before = (self._known(table) or {}).get("snapshot_id")
        newest = self._newest(table, report.snapshot_id)
        is_first = newest is not None and str(before) != newest
        if is_first and newest is not None:
            entry, offsets, times = self._registration(table, newest, report)
            fault_point("fluss.before-register", table=str(table.path), times=times)
            self._register(table, entry, offsets, times, keep_from=_KEEP_ALL if before is None else before)
        return CommitAnswer(first=is_first, offsets=report.offsets)

    def _registration(self, table: TableInfo, newest: SnapshotId, report: CommitReport) -> _Registration:
        """An adopted snapshot is registered with an offsets file of its own. Fluss may have deleted the file that the
        lake names, as it does when another snapshot is registered; where it has not, another job that adopts at the
        same moment would let it delete the file that both name."""
        prepared = self._prepared.get(report.round_id)
        if report.kind is LedgerKind.ROUND and prepared is not None and newest == report.snapshot_id:
            offsets = {r.bucket: r.range.stop for r in report.ranges}
            return Registered(newest, prepared.path), offsets, {b: last.at_ms for b, last in prepared.last.items()}
        if report.work != TIER and prepared is not None and newest == report.snapshot_id:
            return Registered(newest, prepared.path), report.offsets, {}
        return Registered(newest, self._write_offsets(table, report.offsets, anew=True)), report.offsets, {}

    def knows_round(self, table_id: TableId, round_id: RoundId, side: SideName = DEFAULT_SIDE) -> bool:
        table = self._tables.load_by_id(table_id)
        return any(s.round_id == round_id for s in self._reader(table).snapshots())

    def ledger(self, path: TablePath, side: SideName | None = None) -> Sequence[LedgerEntry]:
        table = self._tables.load(path)
        reader = self._reader(table)
        head = load_head(reader)  # says its offsets also where the Flink job wrote it: that file is still there
        if head is None:
            return []
        known = [head if s.snapshot_id == head.snapshot_id else s for s in reader.snapshots()]
        return read_ledger(table.table_id, known, head.snapshot_id)

    def _newest(self, table: TableInfo, seen: SnapshotId | None) -> SnapshotId | None:
        """The snapshot to tell Fluss of, when main was at `seen`. None: there is none, or main has moved since."""
        reader = self._reader(table)
        head, snapshots = load_head(reader), reader.snapshots()
        newest = find_newest(str(table.path), snapshots, head.snapshot_id) if head is not None else None
        return newest if seen is None or find_newest(str(table.path), snapshots, seen) == newest else None

    def _register(
        self,
        table: TableInfo,
        snapshot: Registered,
        offsets: Mapping[Bucket, int],
        times: Mapping[Bucket, int] | None = None,
        *,
        keep_from: int | None = None,
    ) -> None:
        """The offsets let tablet servers expire their remote log, and the times say how far behind the lake is; the
        same path twice says that the snapshot is readable.

        Fluss deletes the offsets files of what it knew before `keep_from`, its newest when we looked. Whatever came
        since stays: another job's snapshot, and this very one where a request that got no answer arrived all the same.
        None, as the Flink job has it: all files but the new one go."""
        ids = {"table_id": int(table.table_id), "snapshot_id": int(snapshot.snapshot_id)}
        moved = {**ids, "buckets": bucket_ends(table, offsets, times), "path": _path(table)}
        entry = {**ids, "tiered": snapshot.path, "readable": snapshot.path, "keep_from": keep_from}
        self._tiering(COMMIT_LAKE, {"tables": [moved], "snapshots": [entry]})

    def _tiering(self, api: Api, values: Message) -> Sequence[Message]:
        answers: Sequence[Message] = self.servers.call_coordinator(api, values).get("tables", [])
        for answer in answers:
            if answer.get("error_code"):
                raise to_error(self.servers.bootstrap, api.name, answer["error_code"], answer.get("error_message"))
        return answers

    # ---- intents ---------------------------------------------------------------------------------------------------
    def record_intent(self, intent: Intent) -> None:
        table = self._tables.load_by_id(intent.table_id)
        self._intents_of(table).record(intent)
        _keep(self._intents, intent.round_id, table, self._lock)

    def abandon_intent(self, round_id: RoundId, *, unused: bool = False) -> None:
        with self._lock:
            table = self._intents.pop(round_id, None)
        if table is not None:
            self._intents_of(table).abandon(round_id)

    def _intents_of(self, table: TableInfo) -> IntentStore:
        lake = self._lake_of(table)[2]
        assert isinstance(lake, SupportsIntents), f"{lake.name} keeps no intents"
        return lake.open_intents(table)

    # ---- reads -----------------------------------------------------------------------------------------------------
    def read_plan(
        self, path: TablePath, *, lease_s: float = 60.0, at_least: str | None = None, side: SideName | None = None
    ) -> ReadPlan:
        return plan_read(self._tables.load(path), self._store, self._lake_of, self._clock, lease_s, at_least)

    def renew_read(self, lease_id: LeaseId, lease_s: float, snapshot_id: SnapshotId | None = None) -> None:
        """There is nothing to hold: see `read_plan`."""

    def release_read(self, lease_id: LeaseId) -> None:
        """There is nothing to give back."""

    # ---- pieces ----------------------------------------------------------------------------------------------------
    def _reader(self, table: TableInfo) -> LakeReader:
        return self._lake_of(table)[2].open_reader(table)


def _is_accepted(table: TableInfo) -> bool:
    return str(table.path) in os.environ.get(ACCEPT_VARIABLE, "").split(",")


def _path(table: TableInfo) -> Message:
    return path_message(table.path.database, table.path.table)


def _keep(kept: OrderedDict[K, T], key: K, value: T, lock: threading.Lock) -> None:
    with lock:
        kept[key] = value
        while len(kept) > _KEPT:
            kept.popitem(last=False)
