# SPDX-License-Identifier: Apache-2.0
"""Rewrites one group of files in an executor: live rows of the planned snapshot, in offset order, into new files.

A group is held in memory and sorted: its planner limits its size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakeward.model import OFFSET, LogSplit, OffsetRange, Offsets, OffsetSet, OwnBytes, fault_point, pack, unpack
from lakeward.spi import LakeFile, LakeWriter, RewriteResult, RewriteTask, WriteTask, dropped_group

_KIND, _VERSION = "rewrite-ranks", 1
FILE, RANK = "__file", "__rank"
"""Columns of rows while they are sorted: the number of their input, and their number among its live rows."""


@dataclass(frozen=True)
class RankTable(OwnBytes):
    """Maps rows of an input to their positions in the new files. `gone`: positions that the planned snapshot had
    deleted. The surviving rows, counted from 0, form runs: rows from `ranks[i]` on are at `positions[i]`,
    `positions[i]` + 1, ... A file whose rows stay together is one run."""

    path: str
    gone: OffsetSet
    ranks: Offsets
    positions: Offsets

    @classmethod
    def of(cls, path: str, gone: OffsetSet, new_positions: Offsets) -> RankTable:
        """Builds the table from the new position of each surviving row, in the input's order."""
        breaks = np.flatnonzero(np.diff(new_positions) != 1) + 1
        ranks = np.concatenate([[0], breaks]).astype(np.int64) if len(new_positions) else np.empty(0, np.int64)
        return cls(path, gone, ranks, new_positions[ranks].astype(np.int64))

    def follow(self, positions: Offsets) -> Offsets:
        """Returns the new positions of these rows, ascending, without rows that were deleted when the rewrite was
        planned."""
        remaining = positions[~self.gone.mask(positions)]
        if not len(remaining):
            return remaining
        survivors = remaining - self.gone.rank(remaining)
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


def number_rows(tables: Iterable[pa.Table], file_number: int) -> Iterator[pa.Table]:
    """Adds `FILE` and `RANK` to the live rows of one input."""
    rank = 0
    for live in tables:
        ranks = pa.array(np.arange(rank, rank + live.num_rows))
        rank += live.num_rows
        numbers = pa.array(np.full(live.num_rows, file_number, np.int64))
        yield live.append_column(FILE, numbers).append_column(RANK, ranks)


def sort_rows(parts: Sequence[pa.Table]) -> pa.Table | None:
    """Sorts numbered rows by offset; rows of one offset stay in the order of their inputs. None: there are no rows."""
    order = [(OFFSET, "ascending"), (FILE, "ascending"), (RANK, "ascending")]
    return pa.concat_tables(parts, promote_options="default").sort_by(order) if parts else None


def rank_table(path: str, gone: OffsetSet, number: int, sorted_rows: pa.Table | None) -> RankTable:
    """Builds the table of input `number` from the columns `FILE` and `RANK` of the rewritten rows."""
    if sorted_rows is None:
        return RankTable.of(path, gone, np.empty(0, np.int64))
    positions = np.flatnonzero(sorted_rows.column(FILE).to_numpy() == number)
    by_rank = positions[np.argsort(sorted_rows.column(RANK).to_numpy()[positions])]
    return RankTable.of(path, gone, by_rank)


def writing_task(task: RewriteTask, rows: pa.Table) -> WriteTask:
    """The task for a format's own writer, which writes these rows; they are sorted by offset."""
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
    """The payload that a format made of a group's rows, and figures of the new files."""

    payload: bytes
    rows: int
    bytes_written: int


def rewrite_group(
    task: RewriteTask,
    is_due: Callable[[], bool],
    read: Callable[[LakeFile], tuple[OffsetSet, Iterator[pa.Table]]],
    write: Callable[[pa.Table | None, Sequence[RankTable]], NewFiles],
) -> RewriteResult | None:
    """Returns None if `is_due` said yes first. `read`: returns the deleted positions of an input, and its other rows in
    order. `write`: writes the sorted rows into new files; its rows are None where none is live."""
    if task.group.is_dropped:
        return dropped_group(task.group, write(None, ()).payload)
    files, parts, deleted = task.group.files, [], []
    for number, file in enumerate(files):
        positions, tables = read(file)
        deleted.append(positions)
        for live in number_rows(tables, number):
            if is_due():
                return None
            parts.append(live)
    rows = sort_rows(parts)
    ranks = [rank_table(f.path, deleted[n], n, rows) for n, f in enumerate(files)]
    new = write(None if rows is None else rows.drop_columns([FILE, RANK]), ranks)
    fault_point("rewrite.written", table=str(task.table.path), group=task.group.index)
    return RewriteResult(
        group=task.group,
        payload=new.payload,
        rows=new.rows,
        bytes_read=sum(f.size_bytes for f in files),
        bytes_written=new.bytes_written,
    )


def write_rows(task: RewriteTask, rows: pa.Table, open_writer: Callable[..., LakeWriter]) -> bytes | None:
    """Writes rows with a format's own writer, which is opened for their offsets."""
    writer = open_writer(writing_task(task, rows))
    for batch in rows.to_batches(BATCH_ROWS):
        writer.write(batch)
    return writer.complete()
