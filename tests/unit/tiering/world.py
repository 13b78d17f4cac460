# SPDX-License-Identifier: Apache-2.0
"""A small world to run rounds in without processes: a hot store of lists, a coordinator that keeps books, the memory
lake.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lakeward.errors import LedgerGap, OffsetOutOfRange, SchemaChanged, TableNotFound
from lakeward.lake.memory.plugin import load as load_memory
from lakeward.lake.memory.plugin import shared_lake
from lakeward.model import (
    CHANGE_TYPE,
    DEFAULT_SIDE,
    OFFSET,
    PREV_OFFSET,
    TIMESTAMP,
    Bucket,
    ChangeType,
    Clock,
    Column,
    Epoch,
    InstanceId,
    Intent,
    IntentState,
    JobName,
    LeaseId,
    LedgerKind,
    OffsetMap,
    RoundId,
    RoundOwner,
    Schema,
    SideName,
    SnapshotId,
    SystemClock,
    TableDescriptor,
    TableId,
    TableInfo,
    TablePath,
    new_round_id,
    parse_type,
    to_arrow_schema,
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
from lakeward.spi import (
    CoordinatorClient,
    HotPlugin,
    HotStore,
    KvSnapshot,
    LakeReader,
    LakeStorage,
    LogBounds,
    PluginCache,
)
from lakeward.tiering.round.round import Round
from lakeward.tiering.work.control import RoundControl
from lakeward.tiering.work.dispatch import DirectDispatcher
from lakeward.tiering.work.options import TieringOptions
from lakeward.tiering.work.runner import JobWorld, RoundEnd

_SYSTEM = [
    pa.field(OFFSET, pa.int64()),
    pa.field(TIMESTAMP, pa.timestamp("ms", "UTC")),
    pa.field(CHANGE_TYPE, pa.int8()),
]
BUCKET = Bucket("", 0)


def columns(*spelled: str) -> tuple[Column, ...]:
    return tuple(Column(name=name, type=parse_type(kind)) for name, _, kind in (s.partition(" ") for s in spelled))


def make_table(
    *spelled: str, key: tuple[str, ...] = (), partition: tuple[str, ...] = (), buckets: int = 1
) -> TableInfo:
    schema = Schema(columns=columns(*(spelled or ("id BIGINT NOT NULL", "name STRING"))))
    descriptor = TableDescriptor(schema=schema, primary_key=key, partition_keys=partition, bucket_count=buckets)
    return TableInfo(path=TablePath("db", "t"), table_id=TableId(str(uuid.uuid4())), descriptor=descriptor)


@dataclass
class Record:
    offset: int
    change: ChangeType
    row: dict[str, Any]
    prev: int | None = None


@dataclass
class StoredBatch:
    records: list[Record]
    schema_id: int


@dataclass
class ListBucket:
    batches: list[StoredBatch] = field(default_factory=list)
    live: dict[tuple[Any, ...], Record] = field(default_factory=dict)
    start: int = 0
    end: int = 0

    def snapshot(self) -> list[Record]:
        return [replace(r) for r in self.live.values()]


class ListStore(HotStore):
    """Rows in lists. `before_batch` may raise, stop the round or add rows while a read goes on."""

    has_prev_offset = True

    def __init__(self, table: TableInfo) -> None:
        self.table = table
        self.buckets: dict[Bucket, ListBucket] = {}
        self.snapshots: dict[str, tuple[KvSnapshot, list[Record]]] = {}
        self.held: dict[str, str] = {}
        self.before_batch: Callable[[Bucket, int], None] = lambda _bucket, _offset: None
        self.on_freeze: Callable[[], None] = lambda: None
        self.bytes_per_row = 10.0

    # ---- what tests do -------------------------------------------------------------------------------------------
    def append(self, rows: Sequence[dict[str, Any]], bucket: Bucket = BUCKET) -> None:
        there = self.buckets.setdefault(bucket, ListBucket())
        self._store(there, [Record(there.end + n, ChangeType.APPEND, row) for n, row in enumerate(rows)])

    def upsert(self, rows: Sequence[dict[str, Any]], bucket: Bucket = BUCKET) -> None:
        there = self.buckets.setdefault(bucket, ListBucket())
        records: list[Record] = []
        for row in rows:
            key, at = self._key(row), there.end + len(records)
            old = there.live.get(key)
            if old is None:
                records.append(Record(at, ChangeType.INSERT, row))
            else:
                records.append(Record(at, ChangeType.UPDATE_BEFORE, old.row, old.offset))
                records.append(Record(at + 1, ChangeType.UPDATE_AFTER, row, old.offset))
            there.live[key] = records[-1]
        self._store(there, records)

    def delete(self, keys: Sequence[dict[str, Any]], bucket: Bucket = BUCKET) -> None:
        there = self.buckets[bucket]
        records: list[Record] = []
        for key in keys:
            old = there.live.pop(self._key(key), None)
            if old is not None:
                records.append(Record(there.end + len(records), ChangeType.DELETE, old.row, old.offset))
        self._store(there, records)

    def add_column(self, spelled: str) -> None:
        schema = self.table.schema.with_added(columns(spelled))
        self.table = self.table.with_descriptor(replace(self.table.descriptor, schema=schema))

    def cut_log(self, start: int, bucket: Bucket = BUCKET) -> None:
        self.buckets[bucket].start = start

    def rows(self) -> list[tuple[Any, ...]]:
        """What the lake must hold when all is tiered: (partition, bucket, offset, values...), sorted."""
        found = []
        for bucket, there in self.buckets.items():
            records = there.live.values() if self.table.is_pk else (r for b in there.batches for r in b.records)
            names = self.table.schema.names
            found += [(bucket.partition, bucket.number, r.offset, *(r.row.get(n) for n in names)) for r in records]
        return sorted(found, key=repr)

    def _key(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(row[k] for k in self.table.descriptor.primary_key)

    def _store(self, there: ListBucket, records: list[Record]) -> None:
        there.batches.append(StoredBatch(records, self.table.schema.schema_id))
        there.end += len(records)

    # ---- HotStore --------------------------------------------------------------------------------------------------
    def load_table(self, path: TablePath) -> TableInfo:
        if path != self.table.path:
            raise TableNotFound(table=str(path))
        return self.table

    def list_tables(self) -> Sequence[TablePath]:
        return [self.table.path]

    def freeze(self, table: TableInfo) -> Mapping[Bucket, LogBounds]:
        self.on_freeze()
        return {
            b: LogBounds(start=v.start, end=v.end, bytes_per_row=self.bytes_per_row) for b, v in self.buckets.items()
        }

    def read_log(
        self, table: TableInfo, bucket: Bucket, start: int, stop: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        there = self.buckets[bucket]
        if start < there.start or stop > there.end:
            raise OffsetOutOfRange(
                table=str(table.path), bucket=str(bucket), offset=start, start=there.start, end=there.end
            )
        for batch in list(there.batches):
            inside = [r for r in batch.records if start <= r.offset < stop]
            if not inside:
                continue
            if batch.schema_id > table.schema.schema_id:
                raise SchemaChanged(
                    table=str(table.path),
                    offset=inside[0].offset,
                    batch_schema=batch.schema_id,
                    planned_schema=table.schema.schema_id,
                )
            self.before_batch(bucket, inside[0].offset)
            yield self._batch(table, inside, columns, with_changes=True)

    def offset_at(self, table: TableInfo, bucket: Bucket, at_ms: int) -> int:
        raise NotImplementedError

    def take_snapshot(self, table: TableInfo, bucket: Bucket, holder: str) -> KvSnapshot | None:
        there = self.buckets.get(bucket)
        if there is None or there.end == 0:
            return None
        taken = KvSnapshot(
            bucket=bucket, snapshot_id=f"s{len(self.snapshots)}", log_offset=there.end, rows=len(there.live)
        )
        self.snapshots[taken.snapshot_id] = (taken, there.snapshot())
        self.held[taken.snapshot_id] = holder
        return taken

    def read_snapshot(
        self, table: TableInfo, snapshot: KvSnapshot, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        assert snapshot.snapshot_id in self.held, "the snapshot is not leased"
        records = self.snapshots[snapshot.snapshot_id][1]
        by_key = sorted(records, key=lambda r: repr(r.row), reverse=True)
        for at in range(0, len(by_key), 7):
            yield self._batch(table, by_key[at : at + 7], columns, with_changes=False)

    def release_snapshots(self, table: TableInfo, holder: str) -> None:
        self.held = {k: v for k, v in self.held.items() if v != holder}

    def close(self) -> None:
        return

    def _batch(
        self, table: TableInfo, records: list[Record], names: Sequence[str] | None, *, with_changes: bool
    ) -> pa.RecordBatch:
        wanted = table.schema.names if names is None else names
        arrow = to_arrow_schema(table.schema)
        system = (
            [*_SYSTEM, *([pa.field(PREV_OFFSET, pa.int64())] if table.is_pk else [])] if with_changes else _SYSTEM[:2]
        )
        fields = [arrow.field(n) for n in wanted] + system
        facts = [
            {
                **{n: r.row.get(n) for n in wanted},
                OFFSET: r.offset,
                TIMESTAMP: r.offset,
                CHANGE_TYPE: int(r.change),
                PREV_OFFSET: r.prev,
            }
            for r in records
        ]
        return pa.RecordBatch.from_pylist(
            [{f.name: fact[f.name] for f in fields} for fact in facts], schema=pa.schema(fields)
        )


class BookCoordinator(CoordinatorClient):
    """Leases, ledger and intents of one table in dictionaries. `refuse` and `away` are what tests turn."""

    def __init__(self, table: TableInfo) -> None:
        self.table = table
        self.offsets = OffsetMap()
        self.reports: list[CommitReport] = []
        self.rounds: list[CommitReport] = []
        self.intents: dict[RoundId, Intent] = {}
        self.token: RoundId | None = None
        self.generation = 0
        self.resync = False
        self.holder: Epoch | None = Epoch(1)
        self.before_check: Callable[[], None] = lambda: None
        self.before_commit: Callable[[], None] = lambda: None

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        return HeartbeatAnswer(coordinator_epoch=1)

    def check_lease(self, check: LeaseCheck) -> LeaseVerdict:
        self.before_check()
        return LeaseVerdict(
            held=check.epoch == self.holder, reason="" if check.epoch == self.holder else "another epoch"
        )

    def committed(self, path: TablePath, side: SideName | None = None) -> Committed:
        return Committed(
            table_id=self.table.table_id,
            offsets=self.offsets,
            token=self.token,
            generation=self.generation,
            resync=self.resync,
        )

    def commit(self, report: CommitReport) -> CommitAnswer:
        self.before_commit()
        self.reports.append(report)
        if any(r.round_id == report.round_id and r.kind is LedgerKind.ROUND for r in self.rounds):
            return CommitAnswer(first=False, offsets=self.offsets)
        for added in report.ranges if report.generation == self.generation else ():
            end = self.offsets.get(added.bucket, added.range.start)
            if added.range.start != end:
                raise LedgerGap(
                    table="t", bucket=str(added.bucket), start=added.range.start, stop=added.range.stop, ledger_end=end
                )
        self.offsets = report.offsets if report.generation > self.generation else self.offsets.raised(report.offsets)
        self.generation = max(self.generation, report.generation)
        self.token = report.round_id
        self.rounds.append(report)
        return CommitAnswer(first=True, offsets=self.offsets)

    def knows_round(self, table_id: TableId, round_id: RoundId, side: SideName = DEFAULT_SIDE) -> bool:
        return any(r.round_id == round_id for r in self.rounds)

    def record_intent(self, intent: Intent) -> None:
        self.intents[intent.round_id] = intent

    def abandon_intent(self, round_id: RoundId, *, unused: bool = False) -> None:
        if round_id in self.intents:
            self.intents[round_id] = replace(self.intents[round_id], state=IntentState.ABANDONED)

    def read_plan(
        self, path: TablePath, *, lease_s: float = 60.0, at_least: str | None = None, side: SideName | None = None
    ) -> ReadPlan:
        raise NotImplementedError

    def renew_read(self, lease_id: LeaseId, lease_s: float, snapshot_id: SnapshotId | None = None) -> None:
        raise NotImplementedError

    def release_read(self, lease_id: LeaseId) -> None:
        raise NotImplementedError


class ListPlugin(HotPlugin):
    name = "list"

    def __init__(self, world: World) -> None:
        self.world = world
        self.options: Mapping[str, str] = {}

    def store(self) -> ListStore:
        return self.world.store

    def coordinator(self) -> BookCoordinator:
        return self.world.coordinator

    def lake_options(self, table: TableInfo, side: SideName | None = None) -> tuple[str, Mapping[str, str]]:
        return "memory", {"name": self.world.lake_name}


class World:
    """One table with everything around it; `run` runs a round as a job would, without Spark."""

    def __init__(
        self,
        table: TableInfo | None = None,
        *,
        target_bytes: int = 1 << 20,
        clock: Clock | None = None,
        small: int = 1 << 20,
        held_rows: int = 20_000,
        lake: Mapping[str, str] | None = None,
    ) -> None:
        """`lake`: options of the memory lake."""
        self.table = table or make_table()
        self.store = ListStore(self.table)
        self.coordinator = BookCoordinator(self.table)
        self.lake_name = f"world-{uuid.uuid4()}"
        self.lake: LakeStorage = load_memory({"name": self.lake_name, **(lake or {})})
        self.lake.catalog().create(self.table)
        self.clock = clock or SystemClock()
        plugin = ListPlugin(self)
        plugins = PluginCache(open_hot=lambda _n, _o: plugin, open_lake=lambda n, o: self.lake)
        self.dispatcher = DirectDispatcher(plugins, self.clock, threads=1)
        self.options = TieringOptions(
            target_bytes=target_bytes, small_round_bytes=small, min_work_s=0, held_rows=held_rows
        )
        self.shared = JobWorld(
            hot=plugin, plugins=plugins, dispatcher=self.dispatcher, clock=self.clock, options=self.options
        )

    def owner(self, epoch: int = 1, instance: str = "i") -> RoundOwner:
        return RoundOwner(job=JobName("job"), instance=InstanceId(instance), epoch=Epoch(epoch))

    def hand_out(self, epoch: int = 1, **facts: Any) -> HandedOut:
        return HandedOut(
            table_id=self.table.table_id, path=self.table.path, epoch=Epoch(epoch), freshness_ms=60_000, **facts
        )

    def round(self, *, epoch: int = 1, control: RoundControl | None = None, **facts: Any) -> Round:
        return Round(
            world=self.shared,
            handed=self.hand_out(epoch, **facts),
            owner=self.owner(epoch),
            control=control or RoundControl(),
            round_id=new_round_id(),
        )

    def run(self, **facts: Any) -> RoundEnd:
        return self.round(**facts).run()

    @property
    def reader(self) -> LakeReader:
        return self.lake.open_reader(self.store.table)

    @property
    def memory(self) -> Any:
        return shared_lake(self.lake_name)

    def lake_rows(self) -> list[tuple[Any, ...]]:
        head = self.reader.load_base().head
        return [] if head is None else self.rows_of(head)

    def rows_of(self, snapshot: Any) -> list[tuple[Any, ...]]:
        """(partition, bucket, offset, values...) of every live row, sorted."""
        names = self.store.table.schema.names
        found = []
        for bucket in self.store.buckets:
            for batch in self.reader.scan(snapshot, columns=["__offset", *names], buckets=[bucket]):
                found += [
                    (bucket.partition, bucket.number, r["__offset"], *(r[n] for n in names)) for r in batch.to_pylist()
                ]
        return sorted(found, key=repr)

    def snapshots(self) -> int:
        return len(self.reader.snapshots())
