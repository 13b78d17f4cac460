# SPDX-License-Identifier: Apache-2.0
"""Checks that a put stream's batches have the columns of the schema that the command names. Pure."""

from __future__ import annotations

import pyarrow as pa

from lakeward.errors import InvalidRequest
from lakeward.hot.embedded.remote.shapes import check_put, row_schema
from lakeward.model import TableInfo
from lakeward.protocol.flight import PutCommand, PutKind


def check_put_schema(table: TableInfo, command: PutCommand, sent: pa.Schema) -> None:
    """`table`: at the schema that the command names. Raises `InvalidRequest` when the stream's schema or kind does not
    fit it."""
    check_put(table, command.kind, command.columns)
    names = table.descriptor.primary_key if command.kind is PutKind.DELETE else command.columns
    expected = row_schema(table, names)
    what = f"put to {table.path}"
    if sent.names != expected.names:
        reason = f"columns {', '.join(sent.names)} came, {', '.join(expected.names)} were due"
        raise InvalidRequest(what=what, reason=reason)
    for due, got in zip(expected, sent, strict=True):
        if due.type != got.type:
            raise InvalidRequest(what=what, reason=f"column {due.name} is {got.type}, {due.type} was due")
