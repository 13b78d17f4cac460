# SPDX-License-Identifier: Apache-2.0
"""Rewrites one group of fragments in an executor: live rows, in offset order, into new files.

A group is held as a whole and sorted: it is bounded by its planner. The library's own compaction keeps no offset order
and mixes buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from lakeward.errors import LakeUnavailable
from lakeward.lake.lance.rows import BATCH_ROWS, LanceRows
from lakeward.lake.lance.table import LanceTable
from lakeward.lake.lance.writer import LanceLakeWriter, LanceWriteHandle, LanceWriteResult
from lakeward.lake.ranks import FILE, RANK, RankTable, rank_table, writing_task
from lakeward.model.faults import fault_point
from lakeward.model.offsetset import OffsetSet
from lakeward.model.schema import OFFSET
from lakeward.protocol.packed import Packed
from lakeward.spi.rewrite import RewriteResult, RewriteTask, dropped_group


@dataclass(frozen=True)
class LanceRewrittenGroup(Packed):
    """`version`: the one that was read. `result` None: no row of the group was alive."""

    packed_as: ClassVar = ("lance-rewrite", 1)

    version: int
    result: LanceWriteResult | None
    ranks: tuple[RankTable, ...]

    @property
    def fragments(self) -> list[Any]:
        return [] if self.result is None else self.result.fragments

    def carry_over(self, numbered: Sequence[Any], deleted: Callable[[str], OffsetSet]) -> dict[int, OffsetSet]:
        """Rows deleted from the inputs since they were read, as positions in the new fragments, by their ids."""
        parts = [ranks.follow(deleted(ranks.path).values) for ranks in self.ranks]
        rows = OffsetSet(np.concatenate([np.empty(0, np.int64), *parts])).values
        carried, first = {}, 0
        for fragment in numbered:
            low, high = np.searchsorted(rows, [first, first + fragment.physical_rows])
            if low < high:
                carried[fragment.id] = OffsetSet.from_sorted(rows[low:high] - first)
            first += fragment.physical_rows
        return carried


def rewrite_group(table: LanceTable, task: RewriteTask, is_due: Callable[[], bool]) -> RewriteResult | None:
    """None: it came due before it was done. Deletes of the version that the rewrite was begun on are applied."""
    handle = LanceWriteHandle.from_bytes(task.handle)
    if task.group.is_dropped:
        return dropped_group(task.group, LanceRewrittenGroup(handle.version, None, ()).to_bytes())
    schema, files = handle.arrow_schema, task.group.files
    version = handle.version if handle.version in table.versions() else table.newest()
    rows = LanceRows(table, table.open(version), task.table.descriptor.partition_keys)
    by_path, parts, gone = {rows.path(f): f for f in rows.fragments}, [], []
    for number, file in enumerate(files):
        if file.path not in by_path:
            raise LakeUnavailable(lake="lance", what=f"rewrite {table.name}", reason=f"{file.path} has left the table")
        fragment, rank = by_path[file.path], 0
        gone.append(rows.deleted(fragment))
        for _, live in rows.live(fragment, schema):
            if is_due():
                return None
            ranks = pa.array(np.arange(rank, rank + live.num_rows))
            rank += live.num_rows
            numbers = pa.array(np.full(live.num_rows, number, np.int64))
            parts.append(live.append_column(FILE, numbers).append_column(RANK, ranks))
    order = [(OFFSET, "ascending"), (FILE, "ascending"), (RANK, "ascending")]
    whole = pa.concat_tables(parts).sort_by(order) if parts else None
    since = max((f.sequence for f in files), default=0)
    result = None if whole is None else _write(table, task, whole.drop_columns([FILE, RANK]), since)
    fault_point("rewrite.written", table=str(task.table.path), group=task.group.index)
    ranks_of = tuple(rank_table(f.path, gone[n], n, whole) for n, f in enumerate(files))
    group = LanceRewrittenGroup(version, result, ranks_of)
    return RewriteResult(
        group=task.group,
        payload=group.to_bytes(),
        rows=sum(f.physical_rows for f in group.fragments),
        bytes_read=sum(f.size_bytes for f in files),
        bytes_written=sum(f.files[0].file_size_bytes or 0 for f in group.fragments),
    )


def _write(table: LanceTable, task: RewriteTask, rows: pa.Table, since: int) -> LanceWriteResult | None:
    writer = LanceLakeWriter(writing_task(task, rows), table.storage_options, since)
    for batch in rows.to_batches(BATCH_ROWS):
        writer.write(batch)
    written = writer.complete()
    return None if written is None else LanceWriteResult.from_bytes(written)
