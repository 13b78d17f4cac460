# SPDX-License-Identifier: Apache-2.0
"""The server's own tables in the live warehouse: sides of the coordinator, log ends of the embedded store, read
leases."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from lakeward.coordinator.coordinator import Coordinator
from lakeward.coordinator.state.record import LakeSide
from lakeward.errors import LakewardError, NotFound, SnapshotGone, TableBusy, TableNotFound
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import Bucket, Clock, CutEnds, LakeBase, LeaseId, SnapshotId, TableId, TableInfo, TablePath
from lakeward.server.live.chunks import LiveTarget
from lakeward.server.live.source import LiveEntry, LiveSource
from lakeward.spi import LakeStorage, LogBounds


@dataclass
class _Held:
    """The read lease of a table's newest answer."""

    lease_id: LeaseId
    head: SnapshotId | None
    ends_at_ms: int


class ServerLiveSource(LiveSource):
    """`lakes`: names of those whose Iceberg catalog this server keeps."""

    def __init__(
        self, coordinator: Coordinator, store: EmbeddedStore, lakes: Collection[str], clock: Clock, keep_s: float
    ) -> None:
        self.store: EmbeddedStore = store
        self.coordinator, self._lakes, self._clock, self._keep_s = coordinator, frozenset(lakes), clock, keep_s
        self._held: dict[TableId, _Held] = {}

    def find(self, path: TablePath) -> LiveEntry | None:
        try:
            sides = self.coordinator.board.find_table(path).with_state
        except NotFound:
            return None
        side = self._find_side(sides)
        return None if side is None else ServerEntry(self, side)

    def _find_side(self, sides: Iterable[LakeSide]) -> LakeSide | None:
        return next((s for s in sides if s.options.lake in self._lakes), None)

    def find_path(self, table_id: TableId) -> TablePath | None:
        record = self.coordinator.board.tables.get(table_id)
        return None if record is None else record.info.path

    def freeze(self, tables: Sequence[TableInfo] | None) -> Mapping[TableId, CutEnds]:
        return self.store.look_at_ends(tables)

    def bounds(self, table: TableInfo) -> Mapping[Bucket, LogBounds]:
        return self.store.bounds(table)

    def ask_round(self, table: TableInfo) -> None:
        with suppress(LakewardError):  # a side that is paused gets none
            self.coordinator.ask_now(table.path)

    def find_lake(self, table_id: TableId, recorded: TableInfo | None, lake: str) -> tuple[TableInfo, LakeStorage]:
        lakes, record = self.coordinator.board.lakes, self.coordinator.board.tables.get(table_id)
        side = None if record is None else self._find_side(record.with_state)
        if side is not None:
            return side.lake_table, lakes(side.options.lake)
        if recorded is None:
            raise TableNotFound(table=f"of id {table_id}")
        return recorded, lakes(lake)

    def forget(self, table_id: TableId) -> None:
        self._held.pop(table_id, None)

    def hold(self, side: LakeSide, base: LakeBase) -> None:
        """A lease lasts for `live.keep` after the last answer at least, half as long again so that it is not renewed
        for each. The lease of an older head ends by itself. Raises `SnapshotGone`."""
        now_ms, held = self._clock.now_ms(), self._held.get(side.table_id)
        if held is not None and held.head == base.head and held.ends_at_ms >= now_ms + self._keep_s * 1_000:
            return
        starts = {b: base.offsets.get(b, v.start) for b, v in self.store.bounds(side.info).items()}
        lease = self.coordinator.leases.take(side.id, base.head, starts, self._keep_s * 1.5)
        if lease is None:
            raise SnapshotGone(table=str(side.info.path), snapshot=str(base.head), advice="load the table again")
        self._held[side.table_id] = _Held(lease.lease_id, base.head, lease.ends_at_ms)


class ServerEntry(LiveEntry):
    def __init__(self, source: ServerLiveSource, side: LakeSide) -> None:
        self._source, self._side, self.info = source, side, side.info

    def check_joined(self) -> None:
        side, reason = self._side, "its lake is switched off, and rows since then are in the hot store alone"
        if side.options.enabled:
            reason = "its resync is not through yet" if side.resync is not None else side.broken or ""
        if reason:
            raise TableBusy(table=side.label, reason=reason)

    def target(self) -> LiveTarget:
        side, name = self._side, self._side.options.lake
        table = self._source.store.load_table(self.info.path)
        if table.table_id != side.table_id:
            raise TableNotFound(table=str(self.info.path))
        lake = self._source.coordinator.board.lakes(name)
        assert isinstance(lake, IcebergLakeStorage), "this server's catalog holds Iceberg tables"
        return LiveTarget(table=table, lake_table=side.lake_table, lake=lake, lake_name=name)

    def hold(self, base: LakeBase) -> None:
        self._source.hold(self._side, base)
