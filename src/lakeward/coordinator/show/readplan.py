# SPDX-License-Identifier: Apache-2.0
"""Builds read plans: lease first, then check that snapshot and log starts still stand, else plan again."""

from __future__ import annotations

from collections.abc import Mapping

from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.readlease import ReadLease
from lakeward.coordinator.state.readleases import ReadLeases
from lakeward.coordinator.state.record import LakeSide
from lakeward.errors import (
    InvalidRequest,
    LakeError,
    LakewardError,
    LogTooShort,
    ReadTooFarAhead,
    SnapshotGone,
    TableBusy,
)
from lakeward.model import Bucket, Content, OffsetMap, OffsetRange, SideName, TableInfo, TablePath
from lakeward.protocol.flight import log_ticket, ticket_text
from lakeward.protocol.readplan import HotRange, ReadPlan, WriteToken
from lakeward.spi import LakeReader, LakeSnapshot, LogBounds

TRIES = 10
"""Each failed try means that expiry or retention ran in between; both take many seconds."""


class ReadPlans:
    def __init__(self, board: Board, leases: ReadLeases) -> None:
        self._board, self._leases = board, leases

    def plan(
        self, path: TablePath, name: SideName | None = None, *, lease_s: float = 60.0, at_least: str | None = None
    ) -> ReadPlan:
        """A read plan of the named side; by default the side that is furthest, or the next if its lake does not answer.
        A changelog is read as the lake has it, without a tail."""
        with self._board.lock:
            sides = self._board.find_table(path).with_state if name is None else [self._board.find(path, name)]
            *better, last = sorted(sides, key=_rank)
        for side in better:
            try:
                return self._plan(path, side, lease_s, at_least)
            except (LakeError, LogTooShort):
                continue
        return self._plan(path, last, lease_s, at_least)

    def _plan(self, path: TablePath, side: LakeSide, lease_s: float, at_least: str | None) -> ReadPlan:
        storage = self._board.lake_of(side)
        reader = None if storage is None else storage.open_reader(side.lake_table)
        offsets, bounds = OffsetMap(), dict[Bucket, LogBounds]()
        for _ in range(TRIES):
            snapshot = None if reader is None else reader.load_snapshot()
            offsets = (snapshot.offsets if snapshot is not None else None) or OffsetMap()
            lease = self._lease(side, snapshot, offsets, lease_s)
            if lease is None:
                continue
            bounds = dict(self._board.hot.bounds(side.info, sync=at_least is not None))
            if self._stands(reader, snapshot, offsets, bounds):
                # The schema is looked up after the ends: a record below them may be of a column that is new.
                side = self._again(path, side, lease)
                lake_format = side.options.format if storage else None
                return self._finish(side, lake_format, snapshot, offsets, bounds, lease, at_least)
            self._leases.release(lease.lease_id)
        self._check_reach(path, offsets, bounds)
        raise TableBusy(
            table=str(path), reason=f"its snapshot or log moved {TRIES} times while a read was planned; try again"
        )

    def _again(self, path: TablePath, before: LakeSide, lease: ReadLease) -> LakeSide:
        try:
            with self._board.lock:
                side = self._board.find(path, before.name)
            if side.table_id != before.table_id:
                raise TableBusy(
                    table=str(path), reason="it was dropped and made anew while a read was planned; try again"
                )
            return side
        except LakewardError:
            self._leases.release(lease.lease_id)
            raise

    def _check_reach(self, path: TablePath, offsets: OffsetMap, bounds: Mapping[Bucket, LogBounds]) -> None:
        """Rows between the lake's offset and the log's start are in neither: no plan will ever stand."""
        for bucket, bound in sorted(bounds.items()):
            if bucket in offsets and bound.start > offsets[bucket]:
                raise LogTooShort(table=str(path), bucket=str(bucket), committed=offsets[bucket], start=bound.start)

    def _lease(
        self, side: LakeSide, snapshot: LakeSnapshot | None, offsets: OffsetMap, lease_s: float
    ) -> ReadLease | None:
        starts = {b: offsets.get(b, v.start) for b, v in self._board.hot.bounds(side.info).items()}
        return self._leases.take(side.id, None if snapshot is None else snapshot.snapshot_id, starts, lease_s)

    def _stands(
        self,
        reader: LakeReader | None,
        snapshot: LakeSnapshot | None,
        offsets: OffsetMap,
        bounds: Mapping[Bucket, LogBounds],
    ) -> bool:
        if reader is not None and snapshot is not None:
            try:
                reader.load_snapshot(snapshot.snapshot_id)
            except SnapshotGone:
                return False
        return all(v.start <= offsets[b] for b, v in bounds.items() if b in offsets)

    def _finish(
        self,
        side: LakeSide,
        lake_format: str | None,
        snapshot: LakeSnapshot | None,
        offsets: OffsetMap,
        bounds: Mapping[Bucket, LogBounds],
        lease: ReadLease,
        at_least: str | None,
    ) -> ReadPlan:
        table = side.info
        self._check_token(table, bounds, at_least, lease)
        is_changelog = side.name.content is Content.CHANGELOG
        options = self._board.options
        address = None if lake_format is None else options.addresses.get(side.options.lake)
        return ReadPlan(
            table=side.lake_table,
            side=side.name,
            lease_id=lease.lease_id,
            lease_ends_at_ms=lease.ends_at_ms,
            frozen_at_ms=self._board.clock.now_ms(),
            snapshot_id=None if snapshot is None else snapshot.snapshot_id,
            offsets=offsets,
            tails=tuple(
                _tail(table, b, offsets.get(b, v.start), v.end)
                for b, v in (() if is_changelog else sorted(bounds.items()))
                if offsets.get(b, v.start) < v.end
            ),
            flight_uri=options.flight_uri,
            lake_format=lake_format,
            lake_options={} if address is None else dict(address.options),
        )

    def _check_token(
        self, table: TableInfo, bounds: Mapping[Bucket, LogBounds], at_least: str | None, lease: ReadLease
    ) -> None:
        if at_least is None:
            return
        try:
            token = WriteToken.parse(at_least)
            if token.table_id != table.table_id:
                raise InvalidRequest(
                    what="write token", reason=f"it is of table id {token.table_id}, {table.path} has {table.table_id}"
                )
            for bucket, token_offset in token.offsets.items():
                end = bounds[bucket].end if bucket in bounds else 0
                if end < token_offset:
                    raise ReadTooFarAhead(table=str(table.path), bucket=str(bucket), wanted=token_offset, end=end)
        except (InvalidRequest, ReadTooFarAhead):
            self._leases.release(lease.lease_id)
            raise


def _rank(side: LakeSide) -> tuple[bool, int, int]:
    """Sides without rows that others have come last; then who is furthest counts, then the table's own order."""
    return not side.options.enabled, side.missing, -sum(side.committed.values())


def _tail(table: TableInfo, bucket: Bucket, start: int, stop: int) -> HotRange:
    return HotRange(
        bucket=bucket, range=OffsetRange(start, stop), ticket=ticket_text(log_ticket(table, bucket, start, stop))
    )
