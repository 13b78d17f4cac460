# SPDX-License-Identifier: Apache-2.0
"""Writes one split with Paimon's native writer: rows of a log table, changes of a PK table with their kind."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.schema.data_types import PyarrowFieldParser
from pypaimon.write.commit_message_serializer import serialize_commit_message

from lakeward.errors import InvalidRequest, LakeSchemaBroken
from lakeward.lake.core.columns import SYSTEM
from lakeward.lake.encoding import RowEncoding
from lakeward.lake.paimon.evolve import at_schema
from lakeward.lake.paimon.meta.connection import PaimonConnection, lake_errors
from lakeward.lake.paimon.meta.layout import data_prefix, is_clean, name_of
from lakeward.lake.paimon.meta.mapping import check_options
from lakeward.lake.tablefiles import plain_path, sync
from lakeward.model import BUCKET, CHANGE_TYPE, OFFSET, ChangeType, cast_values, fault_point, pack, unpack
from lakeward.spi import LakeWriter, WriteTask

HANDLE_KIND, RESULT_KIND, VERSION = "paimon-handle", "paimon-write-result", 1
IDENTIFIER = 2**63 - 1
"""Commit identifier of every commit, as in Fluss: rounds are distinguished by their properties."""

_VALUE_KIND = pa.field("_VALUE_KIND", pa.int8())
_KINDS = {ChangeType.UPDATE_BEFORE: 1, ChangeType.UPDATE_AFTER: 2, ChangeType.DELETE: 3}
_KIND_OF = np.array([_KINDS.get(change, 0) for change in ChangeType], np.int8)
"""Row kinds by change type."""


class PaimonLakeWriter(LakeWriter):
    def __init__(self, connection: PaimonConnection, task: WriteTask) -> None:
        unpack(HANDLE_KIND, VERSION, task.handle)
        self._task, self._where = task, str(task.table.path)
        self._encoding = RowEncoding.of("paimon", task)
        lake_table = at_schema(connection.load(task.table.path), task.table.schema)
        self._prefix = data_prefix(lake_table, task.round_id, task.split.bucket.number)
        check_options(task.table, lake_table.table_schema.options)
        self._table = lake_table.copy(
            {
                "data-file.prefix": self._prefix,
                "changelog-file.prefix": name_of("changelog", task.round_id),
                "write.native.enabled": "true",
            }
        )
        self._schema = PyarrowFieldParser.from_paimon_schema(self._table.table_schema.fields)
        self._is_pk, self._is_clean = bool(self._table.table_schema.primary_keys), is_clean(lake_table)
        self._writer: Any = None
        self._rows, self._last = 0, -1
        self._runs = [(0, 0)]
        """Returns (row, offset) of rows whose offset does not follow the one before."""

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._check_order(batch)
            self._send(batch, np.zeros(batch.num_rows, np.int8))

    def write_changes(self, batch: pa.RecordBatch) -> None:
        if not self._is_pk:
            raise InvalidRequest(what=f"changes of {self._task.split}", reason="the lake table has no primary key")
        if batch.num_rows:
            self._send(batch, _KIND_OF[batch.column(CHANGE_TYPE).to_numpy(zero_copy_only=False)])

    def complete(self) -> bytes | None:
        if self._writer is None:
            return None
        with lake_errors(self._where, "write"):
            messages = self._writer.prepare_commit(IDENTIFIER)
            self._writer.close()
            files = [f for m in messages for f in (*m.new_files, *m.changelog_files)]
            if self._is_clean and not self._is_pk:
                self._say_offsets(files)
            sync([plain_path(f.file_path) for f in files])
        self._writer = None
        fault_point("lake.after-file", path=self._prefix)
        fields = self._table.partition_keys_fields
        body = {"rows": self._rows, "bytes": sum(f.file_size for f in files), "files": len(files)}
        return pack(RESULT_KIND, VERSION, body, [serialize_commit_message(m, fields) for m in messages])

    def abort(self) -> None:
        """Drops the native writer without closing it, as closing deletes its files. It is dropped here: it must not end
        on another thread, as it would in an error whose frames still reference it."""
        if self._writer is not None:
            self._writer._native_writer = None
        self._writer = None

    def _send(self, batch: pa.RecordBatch, kinds: np.ndarray[Any, np.dtype[np.int8]]) -> None:
        raw = pa.Table.from_batches([batch])
        (rows,) = self._encoding.fit(raw, lambda _: pa.Table.from_batches([self._fit(batch, kinds)])).to_batches()
        with lake_errors(self._where, "write"):
            fault_point("lake.before-row-group", path=self._prefix)
            if self._writer is None:
                self._writer = self._new_writer()
            number = self._task.split.bucket.number if self._table.options.bucket() > 0 else None
            with self._encoding.errors(raw, pa.schema(self._schema)):
                self._writer._native_writer.write_arrow(rows, number)
            self._writer._written = True
        self._rows += batch.num_rows

    def _new_writer(self) -> Any:
        writer = self._table.new_stream_write_builder().new_write()
        if getattr(writer, "_native_writer", None) is None:
            diff = "Paimon's native writer takes no table with such columns or options"
            raise LakeSchemaBroken(table=self._where, diff=diff)
        return writer

    def _fit(self, batch: pa.RecordBatch, kinds: np.ndarray[Any, np.dtype[np.int8]]) -> pa.RecordBatch:
        unknown = set(batch.schema.names) - {*self._schema.names, CHANGE_TYPE, *(SYSTEM if self._is_clean else ())}
        if unknown:
            diff = f"no column {', '.join(sorted(unknown))} in the lake"
            raise LakeSchemaBroken(table=self._where, diff=diff)
        columns = [self._column(batch, f) for f in self._schema]
        schema = pa.schema(self._schema)
        if self._is_pk:
            columns, schema = [*columns, pa.array(kinds)], schema.append(_VALUE_KIND)
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _column(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        if field.name == BUCKET:
            return pa.array(np.full(batch.num_rows, self._task.split.bucket.number, np.int32))
        if field.name not in batch.schema.names:
            return pa.nulls(batch.num_rows, field.type)
        values = cast_values(batch.column(field.name), field.type)
        if field.nullable or not values.null_count:
            return values
        # A -D may have its key alone.
        return pc.coalesce(values, pa.array([_blank(field.type)] * batch.num_rows, field.type))

    def _check_order(self, batch: pa.RecordBatch) -> None:
        offsets = batch.column(OFFSET).to_numpy()
        if offsets[0] <= self._last or (np.diff(offsets) <= 0).any():
            raise InvalidRequest(what=f"rows of {self._task.split}", reason="their offsets do not ascend")
        starts = np.flatnonzero(np.diff(offsets, prepend=self._last) != 1)
        self._runs += [(self._rows + int(at), int(offsets[at])) for at in starts]
        self._last = int(offsets[-1])

    def _say_offsets(self, files: list[Any]) -> None:
        """Assigns sequence numbers: the native writer numbers its files in the order of their rows."""
        in_order = sorted(files, key=lambda f: int(f.file_name.rpartition("-")[2].partition(".")[0]))
        stop = 0
        for file in in_order:
            start, stop = stop, stop + int(file.row_count)
            file.min_sequence_number, file.max_sequence_number = self._offset_of(start), self._offset_of(stop - 1)

    def _offset_of(self, row: int) -> int:
        at, offset = self._runs[bisect_right(self._runs, row, key=lambda run: run[0]) - 1]
        return offset + row - at


def _blank(kind: pa.DataType) -> Any:
    """Returns a value for a NOT NULL column, in a row that readers never see."""
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return []
    if pa.types.is_struct(kind):
        return {f.name: None if f.nullable else _blank(f.type) for f in kind}
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return "" if pa.types.is_string(kind) else b""
    return pa.scalar(0, pa.int32()).cast(kind).as_py() if not pa.types.is_boolean(kind) else False
