# SPDX-License-Identifier: Apache-2.0
"""Writes rows back that others wrote over: one log file for each file group, before what the round itself has."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pyarrow as pa

from lakeward.lake.hudi.commit.foreignrows import Restored
from lakeward.lake.hudi.meta.columns import COMMIT_TIME, FILE_NAME, decode_columns, file_schema
from lakeward.lake.hudi.meta.slices import log_name
from lakeward.lake.hudi.writer import HudiWriteHandle, LogFile, StagedFile
from lakeward.lake.tablefiles import TableFiles, sync


def write_restored(files: TableFiles, handle: HudiWriteHandle, restored: Sequence[Restored]) -> list[StagedFile]:
    schema = file_schema(decode_columns(handle.columns), handle.avro)
    staged = []
    for number, part in enumerate(restored):
        partition, file_id = part.group
        path = f"{handle.staging}/restored-{number}-{uuid.uuid4().hex}"
        output = LogFile(files, path, log_name(file_id, number, handle.instant, 1), file_id, handle, partition)
        output.write(_renewed(part.rows, schema, handle.instant, file_id), part.deleted)
        output.close()
        sync([path])
        staged.append(output.staged_file(partition))
    return staged


def _renewed(rows: pa.Table, schema: pa.Schema, instant: str, file_id: str) -> pa.Table | None:
    """As this commit's rows."""
    if not rows.num_rows:
        return None
    own = {COMMIT_TIME: instant, FILE_NAME: file_id}
    arrays = [
        pa.repeat(pa.scalar(own[f.name]), rows.num_rows) if f.name in own else rows.column(f.name) for f in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
