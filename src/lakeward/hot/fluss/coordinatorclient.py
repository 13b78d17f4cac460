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
from dataclasses import dataclass, replace
from typing import TypeVar

from lakeward.config import options
from lakeward.errors import InvalidInput, LakewardError, NotFound, TableNotFound
from lakeward.hot.fluss.beats import HeldBack, beat_entry, beat_message, read_lease, read_verdicts
from lakeward.hot.fluss.compactions import Compactions, Held
from lakeward.hot.fluss.epochs import join_epoch
from lakeward.hot.fluss.failures import Code, fluss_code_of, to_error
from lakeward.hot.fluss.heldnote import HeldNote
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
from lakeward.hot.fluss.slack import Slack
from lakeward.hot.fluss.standing import Standing, make_due
from lakeward.hot.fluss.store import FlussStore
from lakeward.hot.fluss.supported import check_supported
from lakeward.hot.fluss.wire.messages import COMMIT_LAKE, HEARTBEAT, LAKE_SNAPSHOT, PREPARE_LAKE, Api
from lakeward.hot.fluss.wire.protobuf import Message
from lakeward.hot.fluss.wire.servers import FlussServers, path_message
from lakeward.model.bucket import Bucket
from lakeward.model.clock import Clock, SystemClock
from lakeward.model.faults import fault_point
from lakeward.model.ids import LeaseId, RoundId, SnapshotId, TableId
from lakeward.model.intent import Intent
from lakeward.model.ledger import LedgerEntry, LedgerKind
from lakeward.model.offsets import OffsetMap
from lakeward.model.side import COMPACT, DEFAULT_SIDE, SideName
from lakeward.model.table import TableInfo, TablePath
from lakeward.protocol.commit import CommitAnswer, CommitReport, Committed
from lakeward.protocol.heartbeat import HandedOut, HeartbeatAnswer, HeartbeatRequest, LeaseCheck, LeaseVerdict
from lakeward.protocol.readplan import ReadPlan
from lakeward.spi.coordinator import CoordinatorClient
from lakeward.spi.lake import OFFSETS_KEY, LakeReader, LakeSnapshot

log = logging.getLogger("lakeward.fluss")

BEAT_MS = 500
"""Fluss's timers tick once a second and its lease is 120 s: this is about being handed tables soon."""

_LEFT_TO_OTHERS_S = 1.0
"""A job cannot tell Fluss which tables it takes: after some that it cannot it asks for none for so long. Another job
that asks in that time gets them, and this one's tables wait no longer than that."""

_KEPT = 1_000
_KEEP_ALL = -1
_LOST_OFFSETS = "lake table snapshot"
"""In the words of Fluss's error when the file of a table's offsets is gone."""

_FRESHNESS = options.TABLE_DATALAKE_FRESHNESS

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True)
class _Prepared:
    """A round's commit as Fluss knows of it: the file of its offsets, and what lies before them in the log."""

    offsets: Mapping[Bucket, int]
    path: str
    last: Mapping[Bucket, LastBatch]


_Registration = tuple[Registered, Mapping[Bucket, int], Mapping[Bucket, int]]


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
        self._held, self._slack, self._compactions = HeldBack(), Slack(), Compactions(self._is_compacted)
        self._paths: dict[TableId, TablePath] = {}
        self._prepared: OrderedDict[RoundId, _Prepared] = OrderedDict()
        self._intents: OrderedDict[RoundId, TableInfo] = OrderedDict()
        self._looked_at: OrderedDict[SnapshotId, None] = OrderedDict()
        self._lock = threading.Lock()
        self._note = note
        self._looked_up: dict[TableId, bool] = {}
        self._ask_at = 0.0

    # ---- heartbeat -------------------------------------------------------------------------------------------------
    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        """One table per call is all that Fluss hands out: the call is repeated while there is room and
        something comes.
        """
        now = self._clock.monotonic()
        if request.room and self._note is not None and (left := self._note.find_left(request.job)):
            self._beat({"failed": [beat_entry(*key) for key in left]})
            self._note.given_back()
            log.info("a job of this name ended without giving back %d tables: they are given back now", len(left))
        told = self._compactions.translate(request, now)
        renewals = self._compactions.renewed()
        with self._lock:
            self._held.note(told, now)
            self._slack.note(told, now)
            due = self._held.due(now, all_of_them=request.leaving)
            renewed = [*self._held.renewed(now), *renewals] if not request.leaving else []
        told = replace(told, room=0 if now < self._ask_at else max(0, told.room - len(renewals)))
        answer = self._beat(beat_message(told, renewed, [beat_entry(*key) for key in due]))
        with self._lock:
            self._held.told(due)
            self._held.refused(answer)
        compacted = self._compactions.told(request, told, answer)
        self._warn(answer)
        self._store.renew_snapshots()
        verdicts, handed = read_verdicts(told, answer), self._collect(answer, told.room)
        with self._lock:
            tables = (*map(self._compaction, compacted), *self._slack.order(handed, self._clock.monotonic()))
            waiting = [*self._held.keys, *self._compactions.keys]
        if self._note is not None and self.servers.has_growing_epochs:
            in_work = [] if request.leaving else [(t.table_id, t.epoch) for t in request.tiering]
            self._note.keep(request.job, [*in_work, *((t.table_id, t.epoch) for t in handed), *waiting])
        return HeartbeatAnswer(
            coordinator_epoch=answer.get("coordinator_epoch", 0), verdicts=verdicts, tables=tables, next_beat_ms=BEAT_MS
        )

    def _collect(self, answer: Message, room: int) -> list[HandedOut]:
        """Asks on until there is no room or nothing comes. A server that is away from here on takes nothing back: what
        was handed out so far is the job's."""
        handed: list[HandedOut] = []
        refused: list[HandedOut] = []
        while (table := self._handed(answer)) is not None:
            (refused if self._is_refused(table) else handed).append(table)
            if len(handed) >= room:
                break
            try:
                answer = self._beat({"request_table": 1})
            except LakewardError as error:
                log.info("%d tables were handed out, then: %s", len(handed) + len(refused), error)
                break
        if refused:
            self._give_back(refused)
        return handed

    def _is_refused(self, handed: HandedOut) -> bool:
        """Tables that this job cannot tier, said once for each. Trouble that may pass is the round's to tell."""
        if handed.table_id in self._looked_up:
            return self._looked_up[handed.table_id]
        try:
            table = self._store.load_table(handed.path)
            check_supported(table)
            self._lake_of(table)[2].check_shared(table)
        except InvalidInput as error:
            self._looked_up[handed.table_id] = True
            log.warning("%s is left to other jobs: %s", handed.path, error)
            return True
        except Exception:  # noqa: BLE001 - the round will say what is wrong with the table
            return False
        self._looked_up[handed.table_id] = False
        return False

    def _give_back(self, refused: Sequence[HandedOut]) -> None:
        """At once and all together: until the job asks again they wait for whoever can tier them."""
        self._ask_at = self._clock.monotonic() + _LEFT_TO_OTHERS_S
        try:
            self._beat({"failed": [beat_entry(t.table_id, t.epoch) for t in refused]})
        except LakewardError as error:
            log.info("%d tables could not be given back, Fluss takes them after its lease: %s", len(refused), error)

    def make_due(self, table: TableInfo) -> Standing:
        """A table that waits for its time is due after this. Raises `InvalidTable` where Fluss does not tier it."""
        return make_due(self._beat, table)

    def take(self, path: TablePath) -> HandedOut | None:
        """This one table, if it is due. Others that come before it are given back."""
        others: list[HandedOut] = []
        try:
            while (handed := self._handed(self._beat({"request_table": 1}))) is not None:
                if handed.path == path:
                    return handed
                others.append(handed)
        finally:
            if others:
                self._give_back(others)
        return None

    def check_lease(self, check: LeaseCheck) -> LeaseVerdict:
        """Fluss has no question of its own for that: a heartbeat that renews the table is refused when it is
        another's.
        """
        return read_lease(self._beat({"tiering": [beat_entry(check.table_id, check.epoch)]}))

    def _beat(self, message: Message) -> Message:
        return self.servers.call_coordinator(HEARTBEAT, message)

    def _handed(self, answer: Message) -> HandedOut | None:
        table = answer.get("table")
        if table is None:
            return None
        path, epoch = TablePath(table["path"]["database"], table["path"]["table"]), table.get("tiering_epoch", 0)
        table_id = TableId(str(table.get("table_id", 0)))
        with self._lock:
            self._paths[table_id] = path
        freshness_ms = self._freshness_ms(path)
        epoch = join_epoch(answer.get("coordinator_epoch", 0), epoch)
        # Fluss lets a round take as long as the freshness before it must make room for others.
        return HandedOut(table_id=table_id, path=path, epoch=epoch, freshness_ms=freshness_ms, limit_ms=freshness_ms)

    def _freshness_ms(self, path: TablePath) -> int:
        try:
            text = self._store.load_table(path).descriptor.properties.get(_FRESHNESS.key)
            return int((_FRESHNESS.default if text is None else _FRESHNESS.kind.parse(text)).total_seconds() * 1000)
        except (LakewardError, ValueError, KeyError, TypeError):  # the round will say what is wrong with the table
            return int(_FRESHNESS.default.total_seconds() * 1000)

    def _compaction(self, key: Held) -> HandedOut:
        path = self._paths[key[0]]
        limit_ms = self._freshness_ms(path)
        return HandedOut(
            table_id=key[0], path=path, epoch=key[1], freshness_ms=limit_ms, limit_ms=limit_ms, kind=COMPACT
        )

    def _is_compacted(self, table_id: TableId) -> bool:
        """Unless the table says no: what Fluss takes as its default is not among its properties."""
        try:
            table = self._store.load_table(self._paths[table_id])
            is_on = options.TABLE_DATALAKE_AUTO_COMPACTION.kind.parse(
                table.descriptor.properties.get(options.TABLE_DATALAKE_AUTO_COMPACTION.key, "true")
            )
            return bool(is_on) and self._lake_of(table)[2].capabilities.rewrites
        except (LakewardError, KeyError, ValueError):  # a round will say what is wrong with the table
            return False

    def _warn(self, answer: Message) -> None:
        """A finish or failure that Fluss refused: the table is another job's by now. Nothing is left to do."""
        for entry in (*answer.get("finished", []), *answer.get("failed", [])):
            if "error" in entry:
                log.info(
                    "table %s: Fluss did not take the end of its round: error %s",
                    entry.get("table_id"),
                    entry["error"].get("code"),
                )

    # ---- commit ----------------------------------------------------------------------------------------------------
    def committed(self, path: TablePath, side: SideName | None = None) -> Committed:
        """What Fluss knows; the token is that of the snapshot it names, as far as the lake still has it."""
        table = self._load(path)
        answer = self._known(table)
        if answer is None:
            return Committed(table_id=table.table_id)
        offsets = named_offsets(table, answer)
        named = SnapshotId(str(answer["snapshot_id"]))
        reader = self._reader(table)
        snapshots = reader.snapshots()
        self._check_overlap(table, reader, snapshots)
        if _is_accepted(
            table
        ):  # as if Fluss knew nothing: it is told what the lake holds, and the round goes on from there
            return Committed(table_id=table.table_id)
        self._check_log(table, snapshots)
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

    def _check_overlap(self, table: TableInfo, reader: LakeReader, snapshots: Sequence[LakeSnapshot]) -> None:
        """Raises `LakeOverlap`. Costs nothing while no snapshot of the Flink job is new."""
        unseen = {s.snapshot_id for s in snapshots if s.round_id is None and s.snapshot_id not in self._looked_at}
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
            _keep(self._looked_at, snapshot_id, None, self._lock)

    def _check_log(self, table: TableInfo, snapshots: Sequence[LakeSnapshot]) -> None:
        """Raises `LogRewritten`. One small request for each bucket with a mark, all at once."""
        known = known_marks(table, snapshots)
        if known:
            check_marks(table, known, self._store.marks_now(table, {b: offset for b, (offset, _) in known.items()}))

    def known_offsets(self, path: TablePath) -> OffsetMap:
        """What Fluss says of the lake, without a look at it."""
        table = self._load(path)
        answer = self._known(table)
        return OffsetMap() if answer is None else OffsetMap(named_offsets(table, answer))

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
        """`anew`: these are all there are, those of partitions that are gone among them; what Fluss has is not looked
        at.
        """
        ends = [*bucket_ends(table, offsets), *(gone_ends(offsets) if anew else ())]
        entry = {"table_id": int(table.table_id), "path": _path(table), "buckets": ends}
        (answer,) = self._tiering(PREPARE_LAKE, {"tables": [entry], "ignore_previous": 1 if anew else None})
        path: str = answer["path"]
        return path

    def commit(self, report: CommitReport) -> CommitAnswer:
        """Tells Fluss of a lake snapshot, unless it knows it, or main has moved on: who moved it tells. Told again,
        Fluss would delete the offsets file of the entry that the new one replaces, which is the very same file; told
        late, that of a newer snapshot."""
        table = self._load(self._path_of(report.table_id))
        before = (self._known(table) or {}).get("snapshot_id")
        newest = self._newest(table, report.snapshot_id)
        is_first = newest is not None and str(before) != newest
        if is_first and newest is not None:
            entry, offsets, times = self._registration(table, newest, report)
            fault_point("fluss.before-register", table=str(table.path), times=times)
            self._register(table, entry, offsets, times, keep_from=_KEEP_ALL if before is None else before)
        return CommitAnswer(first=is_first, offsets=report.offsets)

    def _registration(self, table: TableInfo, newest: SnapshotId, report: CommitReport) -> _Registration:
        """Adopted: with a file of its own. Fluss may have deleted the one that the lake names, as it does when it is
        told of another snapshot; where it has not, another job that adopts at this moment would let it delete the file
        that both name."""
        prepared = self._prepared.get(report.round_id)
        if report.kind is LedgerKind.ROUND and prepared is not None and newest == report.snapshot_id:
            offsets = {r.bucket: r.range.stop for r in report.ranges}
            return Registered(newest, prepared.path), offsets, {b: last.at_ms for b, last in prepared.last.items()}
        if report.work == COMPACT and prepared is not None and newest == report.snapshot_id:
            return Registered(newest, prepared.path), report.offsets, {}
        return Registered(newest, self._write_offsets(table, report.offsets, anew=True)), report.offsets, {}

    def knows_round(self, table_id: TableId, round_id: RoundId, side: SideName = DEFAULT_SIDE) -> bool:
        table = self._load(self._path_of(table_id))
        return any(s.round_id == round_id for s in self._reader(table).snapshots())

    def ledger(self, path: TablePath, side: SideName | None = None) -> Sequence[LedgerEntry]:
        table = self._load(path)
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
        table = self._load(self._path_of(intent.table_id))
        self._lake_of(table)[2].open_intents(table).record(intent)
        _keep(self._intents, intent.round_id, table, self._lock)

    def abandon_intent(self, round_id: RoundId) -> None:
        with self._lock:
            table = self._intents.pop(round_id, None)
        if table is not None:
            self._lake_of(table)[2].open_intents(table).abandon(round_id)

    # ---- reads -----------------------------------------------------------------------------------------------------
    def read_plan(
        self, path: TablePath, *, lease_s: float = 60.0, at_least: str | None = None, side: SideName | None = None
    ) -> ReadPlan:
        return plan_read(self._load(path), self._store, self._lake_of, self._clock, lease_s, at_least)

    def renew_read(self, lease_id: LeaseId, lease_s: float, snapshot_id: SnapshotId | None = None) -> None:
        """There is nothing to hold: see `read_plan`."""

    def release_read(self, lease_id: LeaseId) -> None:
        """There is nothing to give back."""

    # ---- pieces ----------------------------------------------------------------------------------------------------
    def _load(self, path: TablePath) -> TableInfo:
        table = self._store.load_table(path)
        with self._lock:
            self._paths[table.table_id] = path
        return table

    def _path_of(self, table_id: TableId) -> TablePath:
        """Fluss's calls take paths: every table that a job was handed, or loaded, is known by its id."""
        with self._lock:
            known_path = self._paths.get(table_id)
        if known_path is None:
            for path in self._store.list_tables():
                try:
                    if self._load(path).table_id == table_id:
                        return path
                except NotFound:
                    continue
            raise TableNotFound(table=f"with Fluss's id {table_id}")
        return known_path

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
