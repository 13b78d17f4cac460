# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements beside the puts of a stream: in order, when the disk has them, and never instead of an error."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from lakeward.errors import BucketStopped, InvalidRows
from lakeward.hot.embedded.log.writers import Appended
from lakeward.hot.embedded.serve.acks import UNDER_WAY
from lakeward.model import Bucket
from lakeward.protocol.flight import PutKind

from .standin import Served, serving

B0 = Bucket("", 0)
LIMIT_S = 30.0


def send(served: Served, ids: list[int]) -> list[int]:
    """One row per batch, all in one stream; the stops that were acknowledged, in that order."""
    table = served.table()
    sender = table.new_sender(PutKind.APPEND, None)
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    try:
        acks = sender.send((B0, pa.record_batch([[id], [None]], schema=schema)) for id in ids)
    finally:
        sender.close()
    return [ack.stop for _, ack in acks]


def test_the_next_batch_is_stored_while_the_disk_works() -> None:
    with serving() as served:
        store = served.store

        def before_ack(appended: Appended) -> None:
            """The second put is not on disk before the third is stored. (A fresh stream has one batch under way, then
            two.)
            """
            with store.changed:
                if appended.start == 1 and not store.changed.wait_for(lambda: store.puts >= 3, LIMIT_S):
                    raise BucketStopped(
                        table="t", bucket="0", what="writes", reason="the third put waited for the disk"
                    )

        store.before_ack = before_ack
        assert send(served, [0, 1, 2]) == [1, 2, 3]


def test_acknowledgements_keep_their_order() -> None:
    with serving() as served:
        count = 3 * UNDER_WAY
        assert send(served, list(range(count))) == list(range(1, count + 1))
        served.store.is_ready = True
        assert send(served, list(range(5))) == list(range(count + 1, count + 6))


def test_a_put_that_the_disk_refuses_ends_the_stream_though_nobody_sends_any_more() -> None:
    with serving() as served:

        def refuse(appended: Appended) -> None:
            if appended.start == 2:
                raise BucketStopped(table="t", bucket="0", what="writes", reason="fsync failed")

        served.store.before_ack = refuse
        with pytest.raises(BucketStopped):
            send(served, [0, 1, 2, 3, 4])
        served.store.before_ack = lambda appended: None
        served.tables[0].append({"id": 9})


def test_what_came_before_a_refused_batch_is_acknowledged() -> None:
    with serving() as served:
        stored: list[int] = []

        def before_append(batch: pa.RecordBatch) -> None:
            id = batch.column("id")[0].as_py()
            if id == 3:
                raise InvalidRows(table="t", row=0, column="id", reason="three")

        served.store.before_append = before_append
        served.store.before_ack = lambda appended: stored.append(appended.stop)
        with pytest.raises(InvalidRows):
            send(served, [0, 1, 2, 3, 4])
        assert stored == [1, 2, 3]


def test_going_down_waits_for_puts_that_the_disk_has_not() -> None:
    with serving() as served:
        held, stored = threading.Event(), threading.Event()

        def before_ack(appended: Appended) -> None:
            stored.set()
            held.wait(LIMIT_S)

        served.store.before_ack = before_ack
        sending = threading.Thread(target=send, args=(served, [1]))
        sending.start()
        assert stored.wait(LIMIT_S)
        assert not served.service.gate.drain(0.05)
        held.set()
        assert served.service.gate.drain(LIMIT_S)
        sending.join(LIMIT_S)
