# SPDX-License-Identifier: Apache-2.0
"""Rewrites one group of files in an executor: a PK table's bucket becomes one base file of the same file group, files
of a log table become one of a new file group. Rows keep Hudi's facts about the commits that wrote them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from lakeward.lake.encoding import settled
from lakeward.lake.hudi import lake_errors
from lakeward.lake.hudi.ground import HudiGround
from lakeward.lake.hudi.meta.columns import FILE_NAME, decode_columns, file_schema
from lakeward.lake.hudi.meta.slices import FOLDER, HudiFile, SeenFile, base_name, merge_order, new_file_id
from lakeward.lake.hudi.meta.table import HudiTable
from lakeward.lake.hudi.scan.rows import BATCH_ROWS, HudiRows, by_group
from lakeward.lake.hudi.writer import BaseFile, HudiWriteHandle, StagedFile
from lakeward.lake.tablefiles import TableFiles
from lakeward.model import OFFSET, fault_point
from lakeward.protocol.codec import Packed
from lakeward.spi import RewriteResult, RewriteTask, dropped_group


@dataclass(frozen=True)
class HudiRewrittenGroup(Packed):
    """File of a rewritten group. `file` None: no row of the group was live."""

    packed_as: ClassVar = ("hudi-rewrite", 1)

    instant: str
    file: StagedFile | None
    inputs: tuple[str, ...]
    """Files that were read: for a PK table all of a file group, even if fewer of its files were planned."""


def rewrite_group(files: TableFiles, task: RewriteTask, is_due: Callable[[], bool]) -> RewriteResult | None:
    """Returns None if `is_due` said yes first."""
    handle, where = HudiWriteHandle.from_bytes(task.handle), str(task.table.path)
    planned = tuple(f.path for f in task.group.files)
    if task.group.is_dropped:
        return dropped_group(task.group, HudiRewrittenGroup(handle.instant, None, planned).to_bytes())
    root = handle.staging.partition(f"/{FOLDER}/")[0]
    seen = _inputs(HudiTable(files, root, where), task, is_pk=handle.is_pk)
    inputs = [s.file for s in seen]
    schema = file_schema(decode_columns(handle.columns), handle.avro)
    rows, parts = HudiRows(files, where, schema), []
    for group in by_group(inputs):
        for part in rows.live(merge_order(s for s in seen if s.file.group == group), schema.names):
            if is_due():
                return None
            parts.append(part)
    group_rows = pa.concat_tables(parts).sort_by([(OFFSET, "ascending")]) if parts else None
    staged = None
    if group_rows is not None and group_rows.num_rows:
        with lake_errors(where, "write a file of"):
            staged = _write(files, task, handle, inputs[0], settled(group_rows))
    fault_point("rewrite.written", table=where, group=task.group.index)
    return RewriteResult(
        group=task.group,
        payload=HudiRewrittenGroup(handle.instant, staged, tuple(f.path for f in inputs)).to_bytes(),
        rows=0 if staged is None else staged.rows,
        bytes_read=sum(f.size_bytes for f in inputs),
        bytes_written=0 if staged is None else staged.size_bytes,
    )


def _inputs(table: HudiTable, task: RewriteTask, *, is_pk: bool) -> list[SeenFile]:
    """Reads rows of the planned snapshot. A base file replaces all earlier files of its file group."""
    at, planned = f"{task.group.sequence:017d}", {f.path for f in task.group.files}
    there = [s for s in HudiGround.load(table).seen if s.is_in(at) or s.file.path in planned]
    groups = {s.file.group for s in there if s.file.path in planned}
    return [s for s in there if s.file.path in planned or (is_pk and s.file.group in groups and s.is_in(at))]


def _write(
    files: TableFiles, task: RewriteTask, handle: HudiWriteHandle, first: HudiFile, rows: pa.Table
) -> StagedFile:
    number = task.group.index
    new_id = new_file_id(task.group.bucket.number, task.round_id, number, is_pk=False)
    file_id = first.file_id if handle.is_pk else new_id
    name = base_name(file_id, number, handle.instant)
    staged = f"{handle.staging}/rewrite-{number}-{task.attempt}-{uuid.uuid4().hex}"
    output = BaseFile(files, staged, name, file_id, rows.schema)
    at = rows.schema.get_field_index(FILE_NAME)
    named = rows.set_column(at, rows.schema.field(at), pa.repeat(pa.scalar(name), rows.num_rows))
    for batch in named.to_batches(BATCH_ROWS * 16):
        output.write(pa.Table.from_batches([batch], schema=rows.schema))
    output.close()
    return output.staged_file(first.partition)
