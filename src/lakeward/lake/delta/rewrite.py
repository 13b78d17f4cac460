# SPDX-License-Identifier: Apache-2.0
"""Rewrites one group of data files in an executor: live rows of the planned snapshot, in offset order, into new files.

A group is held as a whole and sorted: it is bounded by its planner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from lakeward.lake.delta.meta.actions import AddFile
from lakeward.lake.delta.meta.columns import parse_schema_string, table_schema
from lakeward.lake.delta.meta.described import add_of
from lakeward.lake.delta.scan.rows import BATCH_ROWS, DeltaFileRows
from lakeward.lake.delta.writer import DeltaLakeWriter, DeltaWriteHandle, DeltaWriteResult
from lakeward.lake.ranks import FILE, RANK, RankTable, rank_table, writing_task
from lakeward.lake.tablefiles import TableFiles
from lakeward.model.faults import fault_point
from lakeward.model.offsetset import OffsetSet
from lakeward.model.schema import OFFSET
from lakeward.protocol.packed import Packed
from lakeward.spi.rewrite import RewriteResult, RewriteTask, dropped_group


@dataclass(frozen=True)
class DeltaRewrittenGroup(Packed):
    """`result` None: no row of the group was alive."""

    packed_as: ClassVar = ("delta-rewrite", 1)

    result: DeltaWriteResult | None
    ranks: tuple[RankTable, ...]

    @property
    def files(self) -> list[AddFile]:
        return [] if self.result is None else self.result.files

    def carry_over(self, deleted: Callable[[str], OffsetSet]) -> dict[tuple[str, str], OffsetSet]:
        """Rows deleted from the inputs since the plan, as positions in the new files."""
        parts = [ranks.follow(deleted(ranks.path).values) for ranks in self.ranks]
        rows = OffsetSet(np.concatenate([np.empty(0, np.int64), *parts])).values
        carried, first = {}, 0
        for file in self.files:
            count = file.records or 0
            low, high = np.searchsorted(rows, [first, first + count])
            if low < high:
                carried[file.key] = OffsetSet.from_sorted(rows[low:high] - first)
            first += count
        return carried


def rewrite_group(storage: TableFiles, task: RewriteTask, is_due: Callable[[], bool]) -> RewriteResult | None:
    """None: it came due before it was done."""
    if task.group.is_dropped:
        return dropped_group(task.group, DeltaRewrittenGroup(None, ()).to_bytes())
    handle = DeltaWriteHandle.from_bytes(task.handle)
    schema = table_schema(parse_schema_string(handle.schema))
    rows = DeltaFileRows(storage, handle.root, str(task.table.path), schema)
    files, parts, gone = task.group.files, [], []
    for number, file in enumerate(files):
        add, rank = add_of(file), 0
        gone.append(rows.deleted(add))
        for _, live in rows.live(add, schema.names):
            if is_due():
                return None
            ranks = pa.array(np.arange(rank, rank + live.num_rows))
            rank += live.num_rows
            numbers = pa.array(np.full(live.num_rows, number, np.int64))
            parts.append(live.append_column(FILE, numbers).append_column(RANK, ranks))
    order = [(OFFSET, "ascending"), (FILE, "ascending"), (RANK, "ascending")]
    whole = pa.concat_tables(parts).sort_by(order) if parts else None
    result = None if whole is None else _write(storage, task, whole.drop_columns([FILE, RANK]))
    fault_point("rewrite.written", table=str(task.table.path), group=task.group.index)
    group = DeltaRewrittenGroup(result, tuple(rank_table(f.path, gone[n], n, whole) for n, f in enumerate(files)))
    return RewriteResult(
        group=task.group,
        payload=group.to_bytes(),
        rows=sum(f.records or 0 for f in group.files),
        bytes_read=sum(f.size_bytes for f in files),
        bytes_written=sum(f.size_bytes for f in group.files),
    )


def _write(storage: TableFiles, task: RewriteTask, rows: pa.Table) -> DeltaWriteResult | None:
    writer = DeltaLakeWriter(storage, writing_task(task, rows))
    for batch in rows.to_batches(BATCH_ROWS):
        writer.write(batch)
    written = writer.complete()
    return None if written is None else DeltaWriteResult.from_bytes(written)
