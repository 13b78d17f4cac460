# SPDX-License-Identifier: Apache-2.0
"""Rewrites one group of a memory table's data files into one, in offset order."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from lakeward.lake.memory.rows import matching_keys
from lakeward.lake.memory.table import DataFile, MemoryLake, MemoryTable, PositionDeletes
from lakeward.lake.ranks import RankTable
from lakeward.model.faults import fault_point
from lakeward.model.offsetset import OffsetSet
from lakeward.model.schema import OFFSET
from lakeward.protocol.packed import Packed
from lakeward.spi.lakefile import LakeFile
from lakeward.spi.rewrite import RewriteResult, RewriteTask, dropped_group


@dataclass(frozen=True)
class RewrittenRows(Packed):
    """`path` None: no row of the group was alive."""

    packed_as: ClassVar = ("memory-rewrite", 2)

    path: str | None
    ranks: tuple[RankTable, ...]


def rewrite_group(lake: MemoryLake, task: RewriteTask, is_due: Callable[[], bool]) -> RewriteResult | None:
    """None: it came due before it was done."""
    if task.group.is_dropped:
        return dropped_group(task.group, RewrittenRows(None, ()).to_bytes())
    with lake.lock:
        table = lake.table(task.table.path)
        parts, gone = [], {}
        for number, file in enumerate(task.group.files):
            if is_due():
                return None
            keep = _live(table, file)
            gone[file.path] = OffsetSet(np.flatnonzero(~keep))
            rows = table.data_file(file.path).rows.filter(pa.array(keep))
            parts.append(rows.append_column("__file", pa.array(np.full(rows.num_rows, number))))
        joined = pa.concat_tables(parts, promote_options="default")
        order = np.argsort(joined.column(OFFSET).to_numpy(), kind="stable")
        came_from = joined.column("__file").to_numpy()
        places = np.argsort(order, kind="stable")  # of each joined row, in the new file
        ranks = tuple(
            RankTable.of(f.path, gone[f.path], places[came_from == n]) for n, f in enumerate(task.group.files)
        )
        rows = joined.drop_columns(["__file"]).take(pa.array(order))
        path = f"{table.location}/data/{task.round_id}-{uuid.uuid4().hex}.data" if rows.num_rows else None
        if path is not None:
            table.files[path] = DataFile(
                path=path, bucket=task.group.bucket, rows=rows, modified_at_ms=lake.clock.now_ms()
            )
    fault_point("rewrite.written", table=str(task.table.path), group=task.group.index)
    return RewriteResult(
        group=task.group,
        payload=RewrittenRows(path, ranks).to_bytes(),
        rows=rows.num_rows,
        bytes_read=sum(f.size_bytes for f in task.group.files),
        bytes_written=rows.nbytes,
    )


def _live(table: MemoryTable, file: LakeFile) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Under the deletes that the planned snapshot had."""
    rows = table.data_file(file.path).rows
    keep = np.ones(rows.num_rows, np.bool_)
    for described in file.deletes:
        delete = table.files[described.path]
        if isinstance(delete, PositionDeletes):
            keep[delete.positions.values] = False
        elif not isinstance(delete, DataFile):
            keep &= ~matching_keys(rows, delete.keys)
    return keep
