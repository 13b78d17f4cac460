# SPDX-License-Identifier: Apache-2.0
"""What a put stream's batches must look like, and how they fit the table as it is now. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakeward.errors import InvalidRequest
from lakeward.hot.embedded.remote.shapes import check_put, row_schema
from lakeward.hot.embedded.serve.tables import as_of
from lakeward.model.table import TableInfo
from lakeward.protocol.flight import PutCommand, PutKind


@dataclass(frozen=True, kw_only=True)
class PutPlan:
    """`schema` is what batches have; `columns` those of a partial upsert.

    `padding` are columns that the peer does not know yet: an append gets nulls there."""

    schema: pa.Schema
    columns: tuple[str, ...] | None
    padding: tuple[pa.Field, ...] = ()

    def padded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self.padding:
            return batch
        empty = [pa.nulls(batch.num_rows, field.type) for field in self.padding]
        return pa.RecordBatch.from_arrays([*batch.columns, *empty], schema=pa.schema([*self.schema, *self.padding]))


def plan_put(table: TableInfo, command: PutCommand, sent: pa.Schema) -> PutPlan:
    """Raises `InvalidRequest` when the stream's schema or kind does not fit the table."""
    check_put(table, command.kind, command.columns)
    known = table if command.columns is not None else as_of(table, command.schema_id, len(sent))
    names = _names(known, command)
    schema = row_schema(table, names)
    _check_schema(table, schema, sent)
    columns, padding = command.columns, ()
    if known is not table and command.kind is PutKind.UPSERT:
        columns = names  # a column that the writer does not know keeps its value
    elif known is not table and command.kind is PutKind.APPEND:
        padding = tuple(row_schema(table))[len(names) :]
    return PutPlan(schema=schema, columns=columns, padding=padding)


def _names(known: TableInfo, command: PutCommand) -> tuple[str, ...]:
    if command.kind is PutKind.DELETE:
        return known.descriptor.primary_key
    return command.columns if command.columns is not None else known.schema.names


def _check_schema(table: TableInfo, expected: pa.Schema, sent: pa.Schema) -> None:
    if sent.names != expected.names:
        raise InvalidRequest(
            what=f"put to {table.path}",
            reason=f"columns {', '.join(sent.names)} came, {', '.join(expected.names)} were due",
        )
    for want, got in zip(expected, sent, strict=True):
        if want.type != got.type:
            raise InvalidRequest(
                what=f"put to {table.path}", reason=f"column {want.name} is {got.type}, {want.type} was due"
            )
