# SPDX-License-Identifier: Apache-2.0
"""Rewrites one group of files in an executor: live rows of the planned snapshot, in offset order, into new files.

A group is held as a whole and sorted: it is bounded by its planner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakeward.lake.ranks import FILE, RANK, RankTable, rank_table, writing_task
from lakeward.model import OFFSET, OffsetSet, fault_point
from lakeward.spi import LakeFile, LakeWriter, RewriteResult, RewriteTask, dropped_group

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
