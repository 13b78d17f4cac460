# SPDX-License-Identifier: Apache-2.0
"""The log table `<table>__quarantine`: its columns, and its records as Arrow. A record adds a row, or says of one that
it was written to its table. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import pyarrow as pa

from lakeward.errors import InvalidTable
from lakeward.model import (
    Bucket,
    Column,
    Int64Type,
    Schema,
    StringType,
    TableDescriptor,
    TableInfo,
    TablePath,
    TimestampLtzType,
    to_arrow_schema,
)
from lakeward.protocol.quarantine import BadRow, QuarantinedRow

SUFFIX = "__quarantine"
BUCKET = Bucket("", 0)
LARGEST_ROW = 64 * 1024
"""Characters of a row that are kept. A longer one is cut: it can be looked at, and not be redriven as it is."""

_TEXT, _NAMED = StringType(), StringType(nullable=False)
COLUMNS = (
    Column(name="id", type=_NAMED, comment="the row's name in `lakeward quarantine`"),
    Column(name="state", type=_NAMED, comment="waiting, redriving or redriven"),
    Column(name="at", type=TimestampLtzType(precision=3, nullable=False)),
    Column(name="source", type=_TEXT, comment="who sent it: http, or a file"),
    Column(name="row_number", type=Int64Type(), comment="its place in the source"),
    Column(name="operation", type=_TEXT),
    Column(name="format", type=_TEXT),
    Column(name="column_name", type=_TEXT, comment="the column that did not fit"),
    Column(name="reason", type=_TEXT),
    Column(name="row", type=_TEXT, comment="the row as it came"),
)
_INHERITED = ("enabled", "format", "lakes", "freshness", "pool", "priority", "system-columns")


class RowState(StrEnum):
    """`REDRIVING`: a batch of rows is on its way to the table; its record holds them, so that a crash loses none."""

    WAITING = "waiting"
    REDRIVING = "redriving"
    REDRIVEN = "redriven"


def quarantine_path(path: TablePath) -> TablePath:
    return TablePath(database=path.database, table=f"{path.table}{SUFFIX}")


def describe_quarantine(table: TableInfo) -> TableDescriptor:
    """In the lakes of its table."""
    properties = {
        key: value
        for key, value in table.descriptor.properties.items()
        if key in {f"table.datalake.{name}" for name in _INHERITED}
    }
    comment = f"rows that {table.path} did not take"
    return TableDescriptor(schema=Schema(columns=COLUMNS), properties=properties, comment=comment)


def check_quarantine(table: TableInfo) -> None:
    """Raises `InvalidTable` for a table of that name that someone else made."""
    missing = [c.name for c in COLUMNS if c.name not in table.schema.names]
    if missing or table.is_pk or table.descriptor.bucket_count > 1 or table.descriptor.is_partitioned:
        reason = "the rows that a table refuses are kept under this name, and this is another table; rename or drop it"
        raise InvalidTable(table=str(table.path), field="name", value=table.path.table, reason=reason)


def row_id(table_id: str, writer_id: int, place: int) -> str:
    return hashlib.blake2b(f"{table_id}\n{writer_id}\n{place}".encode(), digest_size=8).hexdigest()


def to_records(rows: Sequence[QuarantinedRow]) -> pa.RecordBatch:
    return _batch(
        [
            {
                "id": row.id,
                "state": str(RowState.WAITING),
                "at": row.at_ms,
                "source": row.source,
                "row_number": row.bad.number,
                "operation": row.operation,
                "format": row.bad.format,
                "column_name": row.bad.column or None,
                "reason": row.bad.reason,
                "row": row.bad.row[:LARGEST_ROW],
            }
            for row in rows
        ]
    )


def state_records(ids: Sequence[str], state: RowState, at_ms: int, rows: Sequence[str | None] = ()) -> pa.RecordBatch:
    """`rows`: what was written in place of each."""
    texts = rows or [None] * len(ids)
    return _batch(
        [{"id": i, "state": str(state), "at": at_ms, "row": text} for i, text in zip(ids, texts, strict=True)]
    )


def from_record(record: dict[str, Any]) -> QuarantinedRow:
    bad = BadRow(
        number=record["row_number"] or 0,
        row=record["row"] or "",
        reason=record["reason"] or "",
        column=record["column_name"] or "",
        format=record["format"] or "json",
    )
    at_ms = round(record["at"].timestamp() * 1000)
    operation, source = record["operation"] or "", record["source"] or ""
    return QuarantinedRow(id=record["id"], at_ms=at_ms, source=source, operation=operation, bad=bad)


def _batch(records: list[dict[str, Any]]) -> pa.RecordBatch:
    schema = to_arrow_schema(COLUMNS)
    arrays = [pa.array([r.get(f.name) for r in records], f.type) for f in schema]
    return pa.record_batch(arrays, schema=schema)
