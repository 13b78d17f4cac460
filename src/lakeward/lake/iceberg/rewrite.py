# SPDX-License-Identifier: Apache-2.0
"""Rewrites one group of data files in an executor: live rows of the planned snapshot, in offset order, into new files.

Files that follow each other in offset order are copied one after the other, a batch in memory. Files that overlap, or
that another engine sorted otherwise, are held as a whole and sorted: a group is bounded by its planner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakeward.lake.core.columns import fill_address
from lakeward.lake.core.rewrite import BATCH_ROWS, FILE, RANK, RankTable, number_rows, rank_table, sort_rows
from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.datafile.offsetcache import load_column
from lakeward.lake.iceberg.datafile.result import RewrittenGroup, WriteHandle, WriteResult, WrittenFile
from lakeward.lake.iceberg.meta.failures import lake_errors
from lakeward.lake.iceberg.meta.location import is_ours
from lakeward.lake.iceberg.meta.types import address_bounds, is_clean, missing_scalars, to_arrow_type, with_address
from lakeward.lake.iceberg.scan.deletefilter import DeleteFilter
from lakeward.lake.iceberg.scan.project import ids_by_name, keep_rows, names_by_id, physical_names, project
from lakeward.lake.iceberg.writer import IcebergLakeWriter
from lakeward.model import BUCKET, OFFSET, LogSplit, OffsetRange, Offsets, OffsetSet, fault_point
from lakeward.spi import LakeFile, RewriteResult, RewriteTask, WriteTask, dropped_group

ROW_ID = NestedField(2147483540, "_row_id", LongType(), required=False)
UPDATED = NestedField(2147483539, "_last_updated_sequence_number", LongType(), required=False)


def with_lineage(schema: Schema) -> Schema:
    """The table's columns and the two of lineage."""
    return Schema(
        *schema.fields,
        ROW_ID,
        UPDATED,
        schema_id=schema.schema_id,
        identifier_field_ids=schema.identifier_field_ids,
    )


def fill_lineage(rows: pa.Table, file: LakeFile, start: int) -> pa.Table:
    """Fills in row ids and sequence numbers that the file leaves out. `start` is the position of the first row in its
    file. A file without a first row id keeps nulls: its rows get their ids from the new file."""
    for name, values in (
        (ROW_ID.name, _row_ids(file, start, rows.num_rows)),
        (UPDATED.name, pa.scalar(file.sequence, pa.int64())),
    ):
        if values is not None:
            column = rows.column_names.index(name)
            rows = rows.set_column(column, name, pc.coalesce(rows.column(column), values))
    return rows


def _row_ids(file: LakeFile, start: int, count: int) -> pa.Array | None:
    if file.first_row_id is None:
        return None
    return pa.array(np.arange(file.first_row_id + start, file.first_row_id + start + count, dtype=np.int64))


def rewrite_group(connection: IcebergConnection, task: RewriteTask, is_due: Callable[[], bool]) -> RewriteResult | None:
    """Returns None if `is_due` said yes first."""
    if task.group.is_dropped:
        return dropped_group(task.group, RewrittenGroup(None, ()).to_bytes())
    rewriter = _GroupRewriter(connection, task, is_due)
    with lake_errors(str(task.table.path), "rewrite files of"):
        return rewriter.run()


class _GroupRewriter:
    def __init__(self, connection: IcebergConnection, task: RewriteTask, is_due: Callable[[], bool]) -> None:
        self._task, self._is_due = task, is_due
        handle = WriteHandle.from_bytes(task.handle)
        self._has_lineage = handle.version >= 3
        self._is_clean = is_clean(handle.schema)
        written = with_lineage(handle.schema) if self._has_lineage else handle.schema
        self._schema = with_address(written)
        self._io: FileIO = connection.file_io(handle.storage, handle.folder)
        self._types = {f.name: to_arrow_type(f.field_type) for f in self._schema.fields}
        self._ids, self._missing = ids_by_name(self._schema), missing_scalars(self._schema)
        self._names = [n for n in self._types if n != BUCKET]
        self._filter = DeleteFilter(self._io, self._schema)
        self._gone: dict[str, list[Offsets]] = {}
        ranges = [f.offsets for f in task.group.files if f.offsets is not None]
        start = min((r.start for r in ranges), default=0)
        stop = max((r.stop for r in ranges), default=0)
        split = LogSplit(bucket=task.group.bucket, range=OffsetRange(start, stop), index=task.group.index)
        self._writer = IcebergLakeWriter(
            connection,
            WriteTask(round_id=task.round_id, table=task.table, split=split, attempt=task.attempt, handle=task.handle),
            written,
        )

    def run(self) -> RewriteResult | None:
        files = sorted(self._task.group.files, key=lambda f: -1 if f.offsets is None else f.offsets.start)
        try:
            ranks = self._copy(files) if self._follow_each_other(files) else self._sort(files)
            if ranks is None:
                self._writer.abort()
                return None
            written = self._writer.complete()
        except BaseException:
            self._writer.abort()
            raise
        result = None if written is None else WriteResult.from_bytes(written)
        if result is not None and self._is_clean:
            result = replace(result, files=tuple(_with_offsets(result, files, ranks)))
        new_files = () if result is None else result.files
        fault_point("rewrite.written", table=str(self._task.table.path), group=self._task.group.index)
        return RewriteResult(
            group=self._task.group,
            payload=RewrittenGroup(result, ranks).to_bytes(),
            rows=sum(f.record_count for f in new_files),
            bytes_read=sum(f.size_bytes for f in files),
            bytes_written=sum(f.size_bytes for f in new_files),
        )

    def _follow_each_other(self, files: list[LakeFile]) -> bool:
        """Whether files can be copied one after the other. Rows of a clean table can, as they have no offset column:
        they stay in the order of their files."""
        if self._is_clean:
            return True
        ranges = [f.offsets for f in files]
        bounded = [r for r in ranges if r is not None]
        if len(bounded) < len(ranges) or any(a.stop > b.start for a, b in pairwise(bounded)):
            return False
        offset_id = self._schema.find_field(OFFSET).field_id
        return all(is_ours(f.path) or _ascends(load_column(self._io, f.path, offset_id)) for f in files)

    def _copy(self, files: list[LakeFile]) -> tuple[RankTable, ...] | None:
        ranks, at = [], 0
        for file in files:
            first = at
            for table in self._live(file):
                if self._is_due():
                    return None
                at += table.num_rows
                for batch in table.to_batches():
                    self._writer.write(batch)
            ranks.append(RankTable.of(file.path, self._gone_of(file), np.arange(first, at, dtype=np.int64)))
        return tuple(ranks)

    def _sort(self, files: list[LakeFile]) -> tuple[RankTable, ...] | None:
        parts = []
        for number, file in enumerate(files):
            for table in number_rows(self._live(file), number):
                if self._is_due():
                    return None
                parts.append(table)
        rows = sort_rows(parts)
        if rows is not None:
            for batch in rows.drop_columns([FILE, RANK]).to_batches(BATCH_ROWS):
                self._writer.write(batch)
        return tuple(rank_table(f.path, self._gone_of(f), n, rows) for n, f in enumerate(files))

    def _live(self, file: LakeFile) -> Iterator[pa.Table]:
        """Reads the live rows of the planned snapshot from a file, in the file's order, and notes the deleted ones."""
        keeper, start = self._filter.of_described(file), 0
        names = [*self._names, *(n for n in keeper.columns if n not in self._names)]
        deleted = self._gone.setdefault(file.path, [])
        with self._io.new_input(file.path).open() as source:
            parquet = pq.ParquetFile(source)
            physical = physical_names(self._ids, names_by_id(parquet.schema_arrow), names)
            columns = sorted({p for p in physical.values() if p is not None})
            for batch in parquet.iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
                table = project(batch, names, physical, self._types, self._missing)
                table = fill_lineage(table, file, start) if self._has_lineage else table
                table = fill_address(table, file.bucket, _first_offset(file), start) if self._is_clean else table
                keep = keeper.mask(table, start)
                if keep is not None:
                    deleted.append((np.flatnonzero(~keep) + start).astype(np.int64))
                    table = keep_rows(table, keep)
                start += batch.num_rows
                if table.num_rows:
                    yield table.select(self._names)

    def _gone_of(self, file: LakeFile) -> OffsetSet:
        parts = self._gone[file.path]
        return OffsetSet.from_sorted(np.concatenate(parts)) if parts else OffsetSet()


def _first_offset(file: LakeFile) -> int | None:
    """None: its rows' offsets are unknown or have gaps."""
    return file.offsets.start if file.offsets is not None and len(file.offsets) == file.record_count else None


def _with_offsets(result: WriteResult, files: list[LakeFile], ranks: tuple[RankTable, ...]) -> Iterator[WrittenFile]:
    """Adds first and last offset to new files of a clean table whose first or last row has none: taken from the inputs
    that these rows came from."""
    ends, start = np.cumsum([f.record_count - len(r.gone) for f, r in zip(files, ranks, strict=True)]), 0
    for file in result.files:
        stop = start + file.record_count
        low, high = (files[int(np.searchsorted(ends, at, side="right"))].offsets for at in (start, stop - 1))
        first = low.start if file.first_offset < 0 and low is not None else file.first_offset
        last = high.stop - 1 if file.last_offset < 0 and high is not None else file.last_offset
        first, last = (first, last) if 0 <= first <= last else (-1, -1)
        number = result.bucket.number
        yield replace(
            file,
            first_offset=first,
            last_offset=last,
            lower_bounds={**file.lower_bounds, **address_bounds(number, first)},
            upper_bounds={**file.upper_bounds, **address_bounds(number, last)},
        )
        start = stop


def _ascends(offsets: Offsets) -> bool:
    return bool(np.all(offsets[1:] > offsets[:-1]))
