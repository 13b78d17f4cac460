# SPDX-License-Identifier: Apache-2.0
"""A whole Lakeward in one process: the real embedded store, coordinator and lake, and rounds without Spark. For tests
and tools.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakeward.client.columns import as_names, parse_columns
from lakeward.client.routing import Router
from lakeward.client.rows import fit_rows
from lakeward.config.lake import LakeConfig
from lakeward.coordinator.coordinator import Coordinator
from lakeward.coordinator.federation import Federation
from lakeward.coordinator.operations import Asked
from lakeward.coordinator.options import CoordinatorOptions
from lakeward.coordinator.state.statestore import StateStore
from lakeward.errors import TableBusy
from lakeward.hot.embedded.options import StoreOptions
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import (
    DEFAULT_SIDE,
    TIER,
    Bucket,
    BucketFunction,
    Clock,
    InstanceId,
    JobName,
    OffsetMap,
    RoundOwner,
    Schema,
    SideName,
    TableDescriptor,
    TableInfo,
    TablePath,
    WorkKind,
    first_side,
    new_instance_id,
    new_round_id,
    side_table,
)
from lakeward.model.side import COMPACT
from lakeward.protocol.heartbeat import (
    HandedOut,
    HeartbeatRequest,
    TableFailed,
    TableFinished,
)
from lakeward.protocol.readplan import ReadPlan, WriteToken
from lakeward.protocol.tables import AlterTable, CreateTable
from lakeward.read.arrow import read, request_of
from lakeward.read.changes import ChangeRequest, Point, read_changes
from lakeward.read.result import ReadResult
from lakeward.spi import CoordinatorClient, HotPlugin, HotStore, LakeReader, LakeStorage, PluginCache
from lakeward.tiering.work.control import RoundControl
from lakeward.tiering.work.dispatch import DirectDispatcher
from lakeward.tiering.work.kinds import load_runner
from lakeward.tiering.work.options import TieringOptions
from lakeward.tiering.work.runner import JobWorld, LeasedWork, RoundEnd, meet
from lakeward_testing.clock import ManualClock

JOB = JobName("in-process")
LAKE = "lake"
SLOTS = 32
"""Room for a round and a compaction of every side that a test has: what it asks for is among what is handed out."""


class InProcessPlugin(HotPlugin):
    name = "in-process"

    def __init__(self, parts: InProcessLakeward) -> None:
        self._parts = parts
        self.options: Mapping[str, str] = {}

    def store(self) -> HotStore:
        return self._parts.store

    def coordinator(self) -> CoordinatorClient:
        return self._parts.coordinator

    def lake_options(self, table: TableInfo, side: SideName | None = None) -> tuple[str, Mapping[str, str]]:
        name = DEFAULT_SIDE.lake if side is None else side.lake
        return self._parts.storage(name).name, {} if name not in self._parts.named else {LAKE: name}


class InProcessLakeward:
    """Real parts over real files. `restart` closes and opens everything but the lake; `tier` runs rounds to the end."""

    def __init__(
        self,
        folder: Path,
        lake: LakeStorage,
        clock: Clock | None = None,
        store_options: StoreOptions | None = None,
        named: Mapping[str, LakeStorage] | None = None,
        **options: Any,
    ) -> None:
        """`named`: further lakes, by name."""
        self.folder, self.lake, self.store_options = folder, lake, store_options
        self.named = named or {}
        self.clock = clock or ManualClock()
        self.instance: InstanceId = new_instance_id()
        self.options = CoordinatorOptions(lake_format=lake.name, lakes=self._lakes(), **options)
        self.plugin = InProcessPlugin(self)
        self._open()

    def _lakes(self) -> dict[str, LakeConfig]:
        lakes = {DEFAULT_SIDE.lake: self.lake, **self.named} if self.named else {}
        return {n: LakeConfig(name=n, format=s.name, enabled=True, settings={}) for n, s in lakes.items()}

    def storage(self, name: str) -> LakeStorage:
        return self.named.get(name, self.lake)

    def _open(self) -> None:
        self.store = EmbeddedStore.open(self.folder / "hot", self.store_options, self.clock)
        state = StateStore.open(self.folder / "coordinator.db")
        self.coordinator = Coordinator(state, self.store, self.storage, self.clock, self.options)
        self.coordinator.open()
        self.federation = Federation(self.coordinator)
        plugins = PluginCache(
            open_hot=lambda _n, _o: self.plugin, open_lake=lambda _n, o: self.storage(o.get(LAKE, ""))
        )
        self.dispatcher = DirectDispatcher(plugins, self.clock)
        self.world = JobWorld(
            hot=self.plugin,
            plugins=plugins,
            dispatcher=self.dispatcher,
            clock=self.clock,
            options=TieringOptions(server="in-process"),
        )

    def close(self) -> None:
        self.dispatcher.close()
        self.coordinator.close()
        self.store.close()

    def restart(self) -> None:
        self.close()
        self.instance = new_instance_id()
        self._open()

    # ---- tables and rows -------------------------------------------------------------------------------------------
    def create(
        self,
        path: str,
        columns: Any,
        *,
        primary_key: str = "",
        partition_by: str = "",
        buckets: int = 1,
        **properties: str,
    ) -> TableInfo:
        key = as_names(primary_key)
        descriptor = TableDescriptor(
            schema=Schema(columns=parse_columns(columns)),
            primary_key=key,
            partition_keys=as_names(partition_by),
            bucket_count=buckets,
            bucket_function=BucketFunction.FLUSS,
            properties=properties,
        )
        return self.federation.create(CreateTable(path=TablePath.parse(path), descriptor=descriptor)).table

    def add_column(self, path: str, spelled: str) -> TableInfo:
        added = tuple(c.to_json() for c in parse_columns(spelled))
        return self.federation.alter(TablePath.parse(path), AlterTable(add_columns=added)).table

    def append(self, path: str, rows: Any) -> WriteToken:
        table = self.store.load_table(TablePath.parse(path))
        return self.put_rows(table, fit_rows(rows, table, table.schema.names), self.store.append)

    def upsert(self, path: str, rows: Any, columns: Sequence[str] | None = None) -> WriteToken:
        table = self.store.load_table(TablePath.parse(path))
        names = table.schema.names if columns is None else tuple(columns)
        return self.put_rows(
            table, fit_rows(rows, table, names), lambda t, b, batch: self.store.upsert(t, b, batch, columns)
        )

    def delete(self, path: str, keys: Any) -> WriteToken:
        table = self.store.load_table(TablePath.parse(path))
        return self.put_rows(table, fit_rows(keys, table, table.descriptor.primary_key), self.store.delete)

    def put_rows(self, table: TableInfo, rows: pa.Table, put: Callable[..., Any]) -> WriteToken:
        """Rows to their buckets; `table` may be a handle from before the newest columns."""
        ends: dict[Bucket, int] = {}
        for bucket, batch in Router(table, turn=0).route(rows):
            ends[bucket] = put(table, bucket, batch).stop
        return WriteToken(table_id=table.table_id, offsets=OffsetMap(ends))

    def read(self, path: str, **options: Any) -> ReadResult:
        return read(self.plugin, request_of(path, **options), self.open_lake)

    def changes(self, path: str, since: Point = "earliest", until: Point | None = None) -> ReadResult:
        request = ChangeRequest(path=TablePath.parse(path), since=since, until=until)
        return read_changes(self.plugin, request, self.clock.now_ms(), self.open_side)

    def open_side(self, table: TableInfo, side: SideName | None) -> LakeReader | None:
        if table.descriptor.properties.get("table.datalake.enabled") == "false":
            return None
        name = side or first_side(table.descriptor.properties) or DEFAULT_SIDE
        return self.storage(name.lake).open_reader(side_table(table, side))

    def open_lake(self, plan: ReadPlan) -> LakeReader | None:
        return self.storage(plan.side.lake).open_reader(plan.table) if plan.lake_format else None

    # ---- rounds ----------------------------------------------------------------------------------------------------
    def tier(self, path: str, side: SideName = DEFAULT_SIDE) -> list[RoundEnd]:
        """Rounds of this side of the table until its lake has everything acknowledged now, or one of them fails for
        good."""
        asked = self.coordinator.ask_now(TablePath.parse(path), side)
        ends: list[RoundEnd] = []
        while not self._is_over(asked, ends):
            handed = self.take(path, side=side)
            if handed is None:
                break
            ends.append(self.run(handed))
        return ends

    def _is_over(self, asked: Asked, ends: Sequence[RoundEnd]) -> bool:
        try:
            return self.coordinator.check_asked(asked) is not None
        except TableBusy:
            if ends and isinstance(ends[-1], TableFailed):
                return True
            raise

    def compact(self, path: str, side: SideName = DEFAULT_SIDE) -> RoundEnd:
        """One compaction, due or not."""
        self.coordinator.operations.maintain_now(TablePath.parse(path), side)
        handed = self.take(path, COMPACT, side)
        assert handed is not None, "another compaction of the table is in work"
        return self.run(handed)

    def take(self, path: str, kind: WorkKind = TIER, side: SideName = DEFAULT_SIDE) -> HandedOut | None:
        """Hands a due table to this process's job. What else it is handed it gives back."""
        kinds = (TIER,) if kind == TIER else (TIER, kind)
        wanted = self._take(lambda h: (str(h.path), h.kind, h.side) == (path, kind, side), kinds=kinds)
        return next(iter(wanted), None)

    def _take(self, wanted: Callable[[HandedOut], bool], **job: Any) -> list[HandedOut]:
        self.coordinator.schedule.tick()
        me = HeartbeatRequest(job=JOB, instance=self.instance, slots=SLOTS, **job)
        handed = self.coordinator.heartbeat(replace(me, room=SLOTS)).tables
        back = [
            TableFailed(table_id=h.table_id, epoch=h.epoch, error={}, given_back=True, side=h.side, kind=h.kind)
            for h in handed
            if not wanted(h)
        ]
        if back:
            self.coordinator.heartbeat(replace(me, failed=tuple(back)))
        return [h for h in handed if wanted(h)]

    def tier_together(self, path: str, sides: Sequence[SideName]) -> list[RoundEnd]:
        """Rounds of these sides, those that are handed out at once at the same time, until each lake has everything
        acknowledged now."""
        asked = [self.coordinator.ask_now(TablePath.parse(path), side) for side in sides]
        ends: list[RoundEnd] = []
        while any(self.coordinator.check_asked(each) is None for each in asked):
            handed = self.take_all(path)
            if not handed:
                break
            ends += self.run_all(handed)
        return ends

    def take_all(self, path: str) -> list[HandedOut]:
        """Rounds of a table as a job gets them that reads the log once for several sides."""
        return self._take(lambda h: str(h.path) == path, reads_together=True)

    def run_all(self, handed: Sequence[HandedOut]) -> list[RoundEnd]:
        return self.run_works(self.works(handed))

    def works(self, handed: Sequence[HandedOut]) -> list[LeasedWork]:
        """Of one answer: those that read the log together know of each other."""
        works = [self._work(h, None) for h in handed]
        meet(works, self.world)
        return works

    def run_works(self, works: Sequence[LeasedWork]) -> list[RoundEnd]:
        """Each in a thread of its own, as a job does; their ends reported."""
        ends: list[RoundEnd | None] = [None] * len(works)

        def run(number: int) -> None:
            ends[number] = self._run(works[number])

        threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(len(works))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [end for end in ends if end is not None]

    def run(self, handed: HandedOut, control: RoundControl | None = None) -> RoundEnd:
        """One round or compaction, its end reported."""
        return self._run(self._work(handed, control))

    def _work(self, handed: HandedOut, control: RoundControl | None) -> LeasedWork:
        owner = RoundOwner(job=JOB, instance=self.instance, epoch=handed.epoch)
        return LeasedWork(handed=handed, owner=owner, round_id=new_round_id(), control=control or RoundControl())

    def _run(self, work: LeasedWork) -> RoundEnd:
        end = load_runner(work.handed.kind).run(work, self.world)
        finished = (end,) if isinstance(end, TableFinished) else ()
        failed = (end,) if isinstance(end, TableFailed) else ()
        self.coordinator.heartbeat(
            HeartbeatRequest(job=JOB, instance=self.instance, slots=SLOTS, finished=finished, failed=failed)
        )
        return end
