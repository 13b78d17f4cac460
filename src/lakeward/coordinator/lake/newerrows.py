# SPDX-License-Identifier: Apache-2.0
"""Rows of a PK table that are newer in its lake than in the hot store, whose folder was restored: loaded back before a
resync makes the lake equal to the hot store."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.record import LakeSide
from lakeward.errors import InvalidRequest, LakeMismatch, LakewardError
from lakeward.model import OFFSET, Bucket, Content
from lakeward.read.tail import scan_bucket
from lakeward.spi import LakeReader, LakeSnapshot


class NewerRows:
    def __init__(self, board: Board) -> None:
        self._board = board

    def load(self, side: LakeSide, *, discard: bool) -> None:
        """From the lake that is furthest, whichever side is resynced: the others follow the hot store. Buckets take no
        writes meanwhile, and a call that broke off is made again. Raises `LakeUnavailable`, `InvalidRequest` where the
        rows cannot be loaded; with `discard` they are left, and the resync removes them."""
        behind = self._board.hot.behind(side.info) if side.info.is_pk else {}
        if not behind:
            return
        if discard:
            self._load(side, sorted(behind), discard=True)
            return
        changes = sum(len(gap) for gap in behind.values())
        try:
            furthest = self._furthest(side)
            self._board.lakes(furthest.options.lake).catalog().validate(furthest.lake_table)
            self._load(furthest, sorted(behind), discard=False)
        except (LakewardError, pa.ArrowException, ValueError) as error:
            if isinstance(error, LakewardError) and error.retryable:
                raise
            command = f"lakeward table resync {side.argument} --discard-newer"
            reason = f"up to {changes:,} changes are newer in the lake and cannot be loaded ({_why(error)}); "
            mend = "make the table's columns fit and resync it again, or " if isinstance(error, LakeMismatch) else ""
            reason += f"{mend}`{command}` removes them"
            raise InvalidRequest(what=f"resync of {side.info.path}", reason=reason) from error

    def _furthest(self, side: LakeSide) -> LakeSide:
        with self._board.lock:
            sides = [s for s in side.table.enabled if s.name.content is Content.STATE]
            return max(sides, key=lambda s: (sum(o for _, o in s.committed.items()), s is side))

    def _load(self, side: LakeSide, buckets: list[Bucket], *, discard: bool) -> None:
        reader = self._board.lakes(side.options.lake).open_reader(side.lake_table).pinned()
        snapshot = reader.load_snapshot()
        for bucket in buckets if snapshot is not None else ():
            assert snapshot is not None
            if discard:
                self._board.hot.put_again(side.info, bucket, self._scan(side, reader, snapshot, bucket, key_only=True))
            else:
                rows = self._scan(side, reader, snapshot, bucket)
                self._board.hot.load_newer(side.info, bucket, rows, snapshot.committed_at_ms)

    def _scan(
        self, side: LakeSide, reader: LakeReader, snapshot: LakeSnapshot, bucket: Bucket, *, key_only: bool = False
    ) -> Iterator[pa.RecordBatch]:
        descriptor = side.info.descriptor
        columns = [*(descriptor.primary_key if key_only else descriptor.schema.names), OFFSET]
        return scan_bucket(reader, side.info, snapshot.snapshot_id, bucket, columns)


def _why(error: Exception) -> str:
    return error.diff if isinstance(error, LakeMismatch) else str(error)
