# SPDX-License-Identifier: Apache-2.0
"""Rewrites one group of data files in an executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from lakeward.lake.core.rewrite import NewFiles, rewrite_group, write_rows
from lakeward.lake.delta.meta.actions import AddFile
from lakeward.lake.delta.meta.columns import parse_schema_string, table_schema
from lakeward.lake.delta.meta.described import add_of
from lakeward.lake.delta.scan.rows import DeltaFileRows
from lakeward.lake.delta.writer import DeltaLakeWriter, DeltaWriteHandle, DeltaWriteResult
from lakeward.lake.ranks import RankTable
from lakeward.lake.tablefiles import TableFiles
from lakeward.model.offsetset import OffsetSet
from lakeward.protocol.packed import Packed
from lakeward.spi.lakefile import LakeFile
from lakeward.spi.rewrite import RewriteResult, RewriteTask


@dataclass(frozen=True)
class DeltaRewrittenGroup(Packed):
    """`result` None: no row of the group was alive."""

    packed_as: ClassVar = ("delta-rewrite", 1)

    result: DeltaWriteResult | None
    ranks: tuple[RankTable, ...]

    @property
    def files(self) -> list[AddFile]:
        return [] if self.result is None else self.result.files


def rewrite(storage: TableFiles, task: RewriteTask, is_due: Callable[[], bool]) -> RewriteResult | None:
    handle = DeltaWriteHandle.from_bytes(task.handle)
    schema = table_schema(parse_schema_string(handle.schema))
    rows = DeltaFileRows(storage, handle.root, str(task.table.path), schema)

    def read(file: LakeFile) -> tuple[OffsetSet, Iterator[pa.Table]]:
        add = add_of(file)
        return rows.deleted(add), (live for _, live in rows.live(add, schema.names))

    def write(live: pa.Table | None, ranks: Sequence[RankTable]) -> NewFiles:
        data = None if live is None else write_rows(task, live, lambda t: DeltaLakeWriter(storage, t))
        result = None if data is None else DeltaWriteResult.from_bytes(data)
        group = DeltaRewrittenGroup(result, tuple(ranks))
        count, size = sum(f.records or 0 for f in group.files), sum(f.size_bytes for f in group.files)
        return NewFiles(group.to_bytes(), count, size)

    return rewrite_group(task, is_due, read, write)
