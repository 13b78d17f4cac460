# SPDX-License-Identifier: Apache-2.0
"""A bucket whose leader is dead: offsets and rows are asked of the new one, by a client that knew the old one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lakeward.errors import OffsetOutOfRange
from lakeward.hot.fluss.store import FlussStore
from lakeward.hot.fluss.wire.messages import FETCH_LOG, LIST_OFFSETS, METADATA
from lakeward.hot.fluss.wire.servers import FlussServers
from lakeward.model import Bucket, Column, Schema, TableDescriptor, TableId, TableInfo, TablePath, parse_type
from tests.unit.hot.fluss.scripted_server import Call, scripted

TABLE = TableInfo(
    path=TablePath("shop", "orders"),
    table_id=TableId("7"),
    descriptor=TableDescriptor(schema=Schema(columns=(Column(name="id", type=parse_type("BIGINT")),)), bucket_count=1),
)
DEAD, ALIVE = 1, 2


@contextmanager
def moved() -> Iterator[tuple[FlussStore, list[int]]]:
    """Metadata names a leader that does not listen, then, once it was tried, the one that does. Also the calls that
    came.
    """
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = closed.getsockname()[1]
    asked: list[int] = []

    def answer(call: Call) -> None:
        asked.append(call.key)
        if call.key == METADATA.key:
            leader = DEAD if asked.count(METADATA.key) == 1 else ALIVE
            nodes = [
                {"id": DEAD, "host": "127.0.0.1", "port": dead},
                {"id": ALIVE, "host": "127.0.0.1", "port": server.port},
            ]
            table = {
                "path": {"database": "shop", "table": "orders"},
                "table_id": 7,
                "buckets": [{"bucket": 0, "leader": leader}],
            }
            call.done(METADATA, {"tablets": nodes, "tables": [table]})
        elif call.key == LIST_OFFSETS.key:
            call.done(LIST_OFFSETS, {"buckets": [{"bucket": 0, "offset": 5}]})
        elif call.key == FETCH_LOG.key:
            bucket = {"bucket": 0, "error_code": 19, "log_start": 3, "high_watermark": 5}
            call.done(FETCH_LOG, {"tables": [{"table_id": 7, "buckets": [bucket]}]})

    with scripted(answer) as server:
        store = FlussStore(FlussServers(f"127.0.0.1:{server.port}", timeout_s=5.0))
        yield store, asked
        store.close()


def test_offsets_come_from_the_new_leader() -> None:
    with moved() as (store, asked):
        assert store.freeze(TABLE)[Bucket("", 0)].end == 5
        assert asked.count(METADATA.key) == 2


def test_rows_are_fetched_from_the_new_leader() -> None:
    """Its answer, that the offset is gone, is what the reader gets."""
    with moved() as (store, asked), pytest.raises(OffsetOutOfRange):
        list(store.read_log(TABLE, Bucket("", 0), 0, 5))
    assert asked.count(FETCH_LOG.key) == 1


def test_a_table_that_was_just_made_is_waited_for() -> None:
    """Its buckets get their leaders a moment after it is there."""
    asked: list[int] = []

    def answer(call: Call) -> None:
        asked.append(call.key)
        if call.key == METADATA.key:
            bucket = {"bucket": 0, "leader": -1 if asked.count(METADATA.key) < 3 else ALIVE}
            table = {"path": {"database": "shop", "table": "orders"}, "table_id": 7, "buckets": [bucket]}
            call.done(
                METADATA, {"tablets": [{"id": ALIVE, "host": "127.0.0.1", "port": server.port}], "tables": [table]}
            )
        elif call.key == LIST_OFFSETS.key:
            call.done(LIST_OFFSETS, {"buckets": [{"bucket": 0, "offset": 0}]})

    with scripted(answer) as server:
        store = FlussStore(FlussServers(f"127.0.0.1:{server.port}", timeout_s=5.0))
        assert store.freeze(TABLE)[Bucket("", 0)].end == 0
        store.close()
