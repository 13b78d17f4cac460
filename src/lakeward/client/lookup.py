# SPDX-License-Identifier: Apache-2.0
"""Looks rows up by primary key: keys go to their buckets, the answers come back in the order of the keys."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.errors import InvalidRequest
from lakeward.hot.embedded.remote.shapes import snapshot_schema
from lakeward.model import Bucket
from lakeward.protocol.flight import Read, Ticket

if TYPE_CHECKING:
    from lakeward.client.table import Table


def look_up(table: Table, keys: pa.Table) -> pa.Table:
    """Rows with `__offset` and `__timestamp` of their last change. One call per bucket that the keys fall into."""
    info = table.info
    if not info.is_pk:
        raise InvalidRequest(what=f"lookup in {info.path}", reason="the table has no primary key")
    names = list(info.descriptor.primary_key)
    parts = [_look_up_bucket(table, bucket, batch) for bucket, batch in table.router.route(keys)]
    rows = pa.concat_tables(parts) if parts else snapshot_schema(info, None).empty_table()
    return rows if len(parts) <= 1 else rows.take(_order(keys.select(names), rows.select(names)))


def _order(keys: pa.Table, found_rows: pa.Table) -> pa.Array:
    """Per key that was found, in the order of the keys, its row in `found`."""
    rows = {key: row for row, key in enumerate(_tuples(found_rows))}
    return pa.array([rows[key] for key in _tuples(keys) if key in rows], pa.int64())


def _tuples(table: pa.Table) -> Iterator[tuple[object, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _look_up_bucket(table: Table, bucket: Bucket, keys: pa.RecordBatch) -> pa.Table:
    info, connection = table.info, table.client.store.connection
    ticket = Ticket.of(Read.LOOKUP, info, bucket=bucket, keys=base64.b64encode(_stream_bytes(keys)).decode())
    batches = connection.retried(
        f"a lookup in {ticket.table}", lambda _: [batch for batch, _ in connection.stream(ticket)]
    )
    return pa.Table.from_batches(batches, schema=snapshot_schema(info, None))


def _stream_bytes(keys: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, keys.schema) as writer:
        writer.write_batch(keys)
    return bytes(sink.getvalue())
