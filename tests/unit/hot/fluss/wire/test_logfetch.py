# SPDX-License-Identifier: Apache-2.0
"""Batches as servers of different versions give them, and remote segments that hold nothing."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest

from lakeward.errors import ServerUnavailable
from lakeward.hot.fluss.store import FlussStore
from lakeward.hot.fluss.wire.messages import FETCH_LOG, METADATA, SCAN_KV, TABLE_SCHEMA
from lakeward.hot.fluss.wire.servers import FlussServers
from lakeward.hot.logbatch.header import pack_inner
from lakeward.model import Bucket
from tests.unit.hot.fluss.scripted_server import Call, scripted
from tests.unit.hot.fluss.test_moves import TABLE

SCHEMA = b'{"version":1,"columns":[{"name":"id","data_type":{"type":"BIGINT"}}]}'
ROWS = pa.record_batch({"id": pa.array(range(5), pa.int64())})
OLD, NEW = (
    (1000, METADATA.key, FETCH_LOG.key, TABLE_SCHEMA.key),
    (1000, METADATA.key, FETCH_LOG.key, TABLE_SCHEMA.key, SCAN_KV),
)


@contextmanager
def bucket_of(fetched: Callable[[], dict[str, Any]], keys: tuple[int, ...]) -> Iterator[FlussStore]:
    def answer(call: Call) -> None:
        if call.key == METADATA.key:
            path = {"database": "shop", "table": "orders"}
            nodes = [{"id": 1, "host": "127.0.0.1", "port": server.port}]
            call.done(
                METADATA,
                {"tablets": nodes, "tables": [{"path": path, "table_id": 7, "buckets": [{"bucket": 0, "leader": 1}]}]},
            )
        elif call.key == TABLE_SCHEMA.key:
            call.done(TABLE_SCHEMA, {"schema_id": 1, "json": SCHEMA})
        elif call.key == FETCH_LOG.key:
            call.done(FETCH_LOG, {"tables": [{"table_id": 7, "buckets": [{"bucket": 0, **fetched()}]}]})

    with scripted(answer, keys) as server:
        store = FlussStore(FlussServers(f"127.0.0.1:{server.port}", timeout_s=5.0))
        yield store
        store.close()


def batch(magic: int, *, epoch: bytes = b"", statistics: bytes = b"") -> bytes:
    """As Fluss writes it: epoch and statistics with their lengths, as far as the version has them."""
    inner = pack_inner(schema_id=1, append_only=True, record_count=5, writer_id=-1, sequence=-1)
    covered = inner + statistics + bytes(ROWS.serialize())
    rest = struct.pack("<bq", magic, 1_000) + epoch + struct.pack("<I", google_crc32c.value(covered)) + covered
    return struct.pack("<qi", 0, len(rest)) + rest


@pytest.mark.parametrize(
    ("keys", "data"),
    [
        (OLD, batch(0)),
        (OLD, batch(1, epoch=struct.pack("<i", 7))),
        (NEW, batch(0)),
        (NEW, batch(1, statistics=struct.pack("<i", 9) + b"min, max.")),
        (NEW, batch(1, statistics=struct.pack("<i", 0))),
        (NEW, batch(2, epoch=struct.pack("<i", 7), statistics=struct.pack("<i", 3) + b"abc")),
    ],
)
def test_magic_one_means_what_it_means_in_the_servers_version(keys: tuple[int, ...], data: bytes) -> None:
    with bucket_of(lambda: {"records": data}, keys) as store:
        (found,) = store.read_log(TABLE, Bucket("", 0), 0, 5)
    assert found.column("id").to_pylist() == list(range(5))
    assert found.column("__offset").to_pylist() == list(range(5))


def test_remote_segments_without_a_batch_that_is_wanted_end_the_read() -> None:
    """Asked again and again the server would say the same for ever."""
    answers = 0

    def fetched() -> dict[str, Any]:
        nonlocal answers
        answers += 1
        return {"remote": {"folder": "/nowhere", "segments": []}} if answers < 200 else {"error_code": 7}

    with bucket_of(fetched, OLD) as store, pytest.raises(ServerUnavailable, match="gives nothing at offset 0"):
        list(store.read_log(TABLE, Bucket("", 0), 0, 5))
