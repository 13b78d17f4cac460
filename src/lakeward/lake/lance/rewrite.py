# SPDX-License-Identifier: Apache-2.0
"""Rewrites one group of fragments in an executor. The library's own compaction keeps no offset order and mixes
buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from lakeward.errors import LakeUnavailable
from lakeward.lake.core.rewrite import NewFiles, rewrite_group, write_rows
from lakeward.lake.lance.rows import LanceRows
from lakeward.lake.lance.table import LanceTable
from lakeward.lake.lance.writer import LanceLakeWriter, LanceWriteHandle, LanceWriteResult
from lakeward.lake.ranks import RankTable
from lakeward.model.offsetset import OffsetSet
from lakeward.protocol.packed import Packed
from lakeward.spi.lakefile import LakeFile
from lakeward.spi.rewrite import RewriteResult, RewriteTask


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


def rewrite(table: LanceTable, task: RewriteTask, is_due: Callable[[], bool]) -> RewriteResult | None:
    """Deletes of the version that the rewrite was begun on are applied."""
    handle = LanceWriteHandle.from_bytes(task.handle)
    version, rows, by_path = handle.version, None, dict[str, Any]()
    if not task.group.is_dropped:
        version = version if version in table.versions() else table.newest()
        rows = LanceRows(table, table.open(version), task.table.descriptor.partitioning)
        by_path = {rows.path(f): f for f in rows.files}
    since = max((f.sequence for f in task.group.files), default=0)

    def read(file: LakeFile) -> tuple[OffsetSet, Iterator[pa.Table]]:
        if rows is None or file.path not in by_path:
            raise LakeUnavailable(lake="lance", what=f"rewrite {table.name}", reason=f"{file.path} has left the table")
        fragment = by_path[file.path]
        return rows.deleted(fragment), rows.live(fragment, handle.arrow_schema)

    def write(live: pa.Table | None, ranks: Sequence[RankTable]) -> NewFiles:
        options = table.storage_options
        data = None if live is None else write_rows(task, live, lambda t: LanceLakeWriter(t, options, since))
        group = LanceRewrittenGroup(version, None if data is None else LanceWriteResult.from_bytes(data), tuple(ranks))
        count = sum(f.physical_rows for f in group.fragments)
        size = sum(f.files[0].file_size_bytes or 0 for f in group.fragments)
        return NewFiles(group.to_bytes(), count, size)

    return rewrite_group(task, is_due, read, write)
