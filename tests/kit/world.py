# SPDX-License-Identifier: Apache-2.0
"""A coordinator over the memory lake and an in-memory hot side, with a clock that is moved by hand, and jobs that
speak.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lakeward.config.lake import LakeConfig
from lakeward.coordinator.coordinator import Coordinator
from lakeward.coordinator.federation import Federation
from lakeward.coordinator.kinds import KINDS
from lakeward.coordinator.options import CoordinatorOptions
from lakeward.coordinator.schedule.kind import Kind
from lakeward.coordinator.state.statestore import StateStore
from lakeward.lake.memory.plugin import MemoryLakeStorage
from lakeward.model import (
    TIER,
    Bucket,
    Column,
    InstanceId,
    Int64Type,
    JobName,
    LedgerKind,
    OffsetMap,
    OffsetRange,
    RoundId,
    RoundResult,
    Schema,
    SnapshotId,
    StringType,
    TableDescriptor,
    TableId,
    TableInfo,
    TablePath,
    WorkKind,
    new_round_id,
)
from lakeward.protocol.heartbeat import (
    CommitReport,
    CommittedRange,
    HandedOut,
    HeartbeatAnswer,
    HeartbeatRequest,
    Progress,
    TableFailed,
    TableFinished,
    TableInWork,
)
from lakeward.protocol.tables import CreateTable, TableAnswer
from lakeward.spi import CommitProperties, LakeStorage, Precondition, load_lake
from lakeward_testing.clock import ManualClock
from tests.kit.hotadmin import MemoryHotAdmin

PATH = TablePath("db", "t")
B0 = Bucket("", 0)


class CoordinatorWorld:
    """One server's worth of parts; `restart` throws away everything but the files."""

    def __init__(
        self,
        folder: Path,
        lake: LakeStorage | None = None,
        *,
        sync: bool = True,
        kinds: Sequence[type[Kind]] = KINDS,
        named: Sequence[str] = (),
        **options: Any,
    ) -> None:
        """`named`: further memory lakes, by name."""
        self.folder, self.lake = folder, lake or load_lake("memory", {"name": str(folder)})
        self.named = {name: load_lake("memory", {"name": f"{folder}/{name}"}) for name in named}
        self.sync, self.kinds = sync, kinds
        self.clock = ManualClock()
        self.hot = MemoryHotAdmin(self.clock)
        for storage in (self.lake, *self.named.values()):
            if isinstance(storage, MemoryLakeStorage):
                storage.lake.clock = self.clock
        self.options = CoordinatorOptions(
            lake_format="memory", lakes=memory_lakes(("default", *named)) if named else {}, **options
        )
        self.coordinator = self._open()
        self.federation = Federation(self.coordinator)

    def _open(self) -> Coordinator:
        store = StateStore.open(self.folder / "state.db", sync=self.sync)
        coordinator = Coordinator(store, self.hot, self.open_lake, self.clock, self.options, self.kinds)
        coordinator.open()
        return coordinator

    def open_lake(self, name: str) -> LakeStorage:
        return self.named.get(name, self.lake)

    def set_options(self, **changes: Any) -> None:
        self.options = replace(self.options, **changes)
        self.restart()

    def close(self) -> None:
        self.coordinator.close()

    def restart(self, *, lose_file: bool = False, read_lakes: bool = True) -> None:
        self.close()
        if lose_file:
            for file in self.folder.glob("state.db*"):
                file.unlink()
        self.clock.advance(1)
        self.coordinator = self._open()
        self.federation = Federation(self.coordinator)
        if read_lakes:
            self.coordinator.lakes.read_unseen()

    def create(
        self, name: str = "t", *, pk: bool = False, adopt: bool = False, buckets: int = 1, **properties: str
    ) -> TableAnswer:
        columns = (Column(name="id", type=Int64Type(nullable=False)), Column(name="v", type=StringType()))
        descriptor = TableDescriptor(
            schema=Schema(columns=columns),
            primary_key=("id",) if pk else (),
            bucket_count=buckets,
            properties={k.replace("__", ".").replace("_", "-"): v for k, v in properties.items()},
        )
        return self.federation.create(CreateTable(path=TablePath("db", name), descriptor=descriptor, adopt=adopt))

    def job(
        self,
        name: str = "job",
        instance: str = "i1",
        slots: int = 4,
        pool: str = "default",
        kinds: tuple[WorkKind, ...] = (TIER,),
    ) -> ScriptedJob:
        return ScriptedJob(self, JobName(name), InstanceId(instance), slots, pool, kinds)

    def commit_to_lake(
        self,
        table: TableInfo,
        stop: int,
        epoch: int = 1,
        round_id: RoundId | None = None,
        generation: int = 0,
        lake: str = "default",
    ) -> SnapshotId:
        """A round's lake commit without rows: what matters here is its offsets."""
        base = self.open_lake(lake).open_reader(table).load_base()
        committer = self.open_lake(lake).open_committer(table)
        round_id = round_id or new_round_id()
        properties = CommitProperties(
            round_id=round_id, epoch=epoch, job="job", offsets={B0: stop}, generation=generation
        )
        committable = committer.prepare([], {}, base, properties)
        condition = Precondition(table_id=table.table_id, token=base.token, starts={B0: base.offsets.get(B0)})
        return committer.commit(committable, condition).snapshot_id


def memory_lakes(names: Sequence[str]) -> dict[str, LakeConfig]:
    return {name: LakeConfig(name=name, format="memory", enabled=True, settings={}) for name in names}


class ScriptedJob:
    """What a tiering job says, in short."""

    def __init__(
        self,
        world: CoordinatorWorld,
        name: JobName,
        instance: InstanceId,
        slots: int,
        pool: str,
        kinds: tuple[WorkKind, ...],
    ) -> None:
        self.world, self.name, self.instance = world, name, instance
        self.slots, self.pool, self.kinds = slots, pool, kinds

    def beat(self, room: int = 0, **more: Any) -> HeartbeatAnswer:
        request = HeartbeatRequest(
            job=self.name, instance=self.instance, slots=self.slots, pool=self.pool, kinds=self.kinds, room=room, **more
        )
        return self.world.coordinator.heartbeat(request)

    def take(self, room: int = 1) -> list[HandedOut]:
        return list(self.beat(room=room).tables)

    def work(self, table: HandedOut, round_id: str | None = None, **progress: Any) -> HeartbeatAnswer:
        item = TableInWork(
            table_id=table.table_id,
            side=table.side,
            kind=table.kind,
            epoch=table.epoch,
            round_id=None if round_id is None else RoundId(round_id),
            progress=Progress(**progress),
        )
        return self.beat(tiering=(item,))

    def commit(self, table: HandedOut, start: int, stop: int, round_id: str, bucket: Bucket = B0, **more: Any) -> Any:
        return self.world.coordinator.commit(
            CommitReport(
                **{
                    "table_id": table.table_id,
                    "side": table.side,
                    "round_id": RoundId(round_id),
                    "snapshot_id": SnapshotId(f"s-{round_id}"),
                    "epoch": table.epoch,
                    "job": self.name,
                    "instance": self.instance,
                    "offsets": OffsetMap({bucket: stop}),
                    "ranges": (CommittedRange(bucket=bucket, range=OffsetRange(start, stop), rows=stop - start),),
                    "kind": LedgerKind.ROUND,
                    **more,
                }
            )
        )

    def finish(
        self, table: HandedOut, round_id: str | None = "r", force: bool = False, **result: Any
    ) -> HeartbeatAnswer:
        done = (
            None if round_id is None else RoundResult(round_id=RoundId(round_id), snapshot_id=SnapshotId("s"), **result)
        )
        item = TableFinished(
            table_id=table.table_id,
            side=table.side,
            kind=table.kind,
            epoch=table.epoch,
            round_id=None if round_id is None else RoundId(round_id),
            result=done,
            force_finished=force,
            caught_up_at_ms=self.world.clock.now_ms(),
        )
        return self.beat(finished=(item,))

    def fail(
        self,
        table: HandedOut,
        given_back: bool = False,
        code: str = "lake-unavailable",
        words: str = "",
        facts: Mapping[str, Any] | None = None,
    ) -> HeartbeatAnswer:
        error = {"code": code, "message": words or f"{code} happened", "facts": dict(facts or {})}
        item = TableFailed(
            table_id=TableId(table.table_id),
            side=table.side,
            kind=table.kind,
            epoch=table.epoch,
            error=error,
            given_back=given_back,
        )
        return self.beat(failed=(item,))
