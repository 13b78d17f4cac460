# SPDX-License-Identifier: Apache-2.0
"""Rewrites one group of files in an executor: live rows of the planned snapshot, in offset order, into new files.

A group is held as a whole and sorted: it is bounded by its planner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakeward.model import OFFSET, LogSplit, OffsetRange, Offsets, OffsetSet, OwnBytes, fault_point, pack, unpack
from lakeward.spi import LakeFile, LakeWriter, RewriteResult, RewriteTask, WriteTask, dropped_group

_KIND, _VERSION = "rewrite-ranks", 1
FILE, RANK = "__file", "__rank"
"""Of a row that is sorted: which input it came from, and its number among that input's survivors."""


@dataclass(frozen=True)
class RankTable(OwnBytes):
    """`gone`: positions that the planned snapshot had deleted. The other rows, counted from 0, lie in runs: from
    `ranks[i]` on at `positions[i]`, `positions[i]` + 1, ... A file whose rows stay together is one run."""

    path: str
    gone: OffsetSet
    ranks: Offsets
    positions: Offsets

    @classmethod
    def of(cls, path: str, gone: OffsetSet, new_positions: Offsets) -> RankTable:
        """From the new position of each surviving row, in the input's order."""
        breaks = np.flatnonzero(np.diff(new_positions) != 1) + 1
        ranks = np.concatenate([[0], breaks]).astype(np.int64) if len(new_positions) else np.empty(0, np.int64)
        return cls(path, gone, ranks, new_positions[ranks].astype(np.int64))

    def follow(self, positions: Offsets) -> Offsets:
        """New positions of these rows, ascending; rows that were gone at the plan are left out."""
        left = positions[~self.gone.mask(positions)]
        if not len(left):
            return left
        survivors = left - self.gone.rank(left)
        runs = np.searchsorted(self.ranks, survivors, side="right") - 1
        return np.sort(self.positions[runs] + survivors - self.ranks[runs])

    def to_bytes(self) -> bytes:
        arrays = [_packed(self.ranks), _packed(self.positions)]
        return pack(_KIND, _VERSION, {"path": self.path, "runs": len(self.ranks)}, [self.gone.to_bytes(), *arrays])

    @classmethod
    def from_bytes(cls, data: bytes) -> RankTable:
        _, body, (gone, ranks, positions) = unpack(_KIND, _VERSION, data)
        runs = body["runs"]
        return cls(body["path"], OffsetSet.from_bytes(gone), _unpacked(ranks, runs), _unpacked(positions, runs))


def rank_table(path: str, gone: OffsetSet, number: int, sorted_rows: pa.Table | None) -> RankTable:
    """Of an input, by its number among them in column `FILE` of the rewritten rows and the rows' own in `RANK`."""
    if sorted_rows is None:
        return RankTable.of(path, gone, np.empty(0, np.int64))
    positions = np.flatnonzero(sorted_rows.column(FILE).to_numpy() == number)
    by_rank = positions[np.argsort(sorted_rows.column(RANK).to_numpy()[positions])]
    return RankTable.of(path, gone, by_rank)


def writing_task(task: RewriteTask, rows: pa.Table) -> WriteTask:
    """What a format's own writer is told of these rows, which are sorted by offset."""
    offsets = rows.column(OFFSET).to_numpy()
    span = OffsetRange(int(offsets[0]), int(offsets[-1]) + 1) if len(offsets) else OffsetRange(0, 0)
    split = LogSplit(bucket=task.group.bucket, range=span, index=task.group.index)
    return WriteTask(round_id=task.round_id, table=task.table, split=split, attempt=task.attempt, handle=task.handle)


def _packed(values: Offsets) -> bytes:
    raw: bytes = pa.compress(values.tobytes(), codec="zstd", asbytes=True)
    return raw


def _unpacked(data: bytes, count: int) -> Offsets:
    return np.frombuffer(pa.decompress(data, decompressed_size=8 * count, codec="zstd", asbytes=True), np.int64)


BATCH_ROWS = 65_536


@dataclass(frozen=True)
class NewFiles:
    """What a format made of a group's rows: its payload, and figures of the new files."""

    payload: bytes
    rows: int
    bytes_written: int


def rewrite_group(
    task: RewriteTask,
    is_due: Callable[[], bool],
    read: Callable[[LakeFile], tuple[OffsetSet, Iterator[pa.Table]]],
    write: Callable[[pa.Table | None, Sequence[RankTable]], NewFiles],
) -> RewriteResult | None:
    """None: it came due before it was done. `read`: positions that are deleted from an input, and its other rows in
    order. `write`: the sorted rows into new files, None where no row is live."""
    if task.group.is_dropped:
        return dropped_group(task.group, write(None, ()).payload)
    files, parts, deleted = task.group.files, [], []
    for number, file in enumerate(files):
        positions, tables = read(file)
        deleted.append(positions)
        rank = 0
        for live in tables:
            if is_due():
                return None
            ranks = pa.array(np.arange(rank, rank + live.num_rows))
            rank += live.num_rows
            numbers = pa.array(np.full(live.num_rows, number, np.int64))
            parts.append(live.append_column(FILE, numbers).append_column(RANK, ranks))
    order = [(OFFSET, "ascending"), (FILE, "ascending"), (RANK, "ascending")]
    whole = pa.concat_tables(parts, promote_options="default").sort_by(order) if parts else None
    ranks_of = [rank_table(f.path, deleted[n], n, whole) for n, f in enumerate(files)]
    new = write(None if whole is None else whole.drop_columns([FILE, RANK]), ranks_of)
    fault_point("rewrite.written", table=str(task.table.path), group=task.group.index)
    return RewriteResult(
        group=task.group,
        payload=new.payload,
        rows=new.rows,
        bytes_read=sum(f.size_bytes for f in files),
        bytes_written=new.bytes_written,
    )


def write_rows(task: RewriteTask, rows: pa.Table, open_writer: Callable[..., LakeWriter]) -> bytes | None:
    """Through a format's own writer, which is opened for these rows' offsets."""
    writer = open_writer(writing_task(task, rows))
    for batch in rows.to_batches(BATCH_ROWS):
        writer.write(batch)
    return writer.complete()
