# SPDX-License-Identifier: Apache-2.0
"""A Spark task that is run again: what an earlier attempt stored is passed over, however much that was."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from lakeward.client.sender import Outgoing, PutSender
from lakeward.errors import OutOfSequence
from lakeward.model import Bucket
from lakeward.spark.taskput import TaskPut

REMEMBERED = 2
ROW = pa.record_batch({"id": [1]})


class Server:
    """Stores batches by bucket and number; remembers the last few, as the real one does. `limit`: then the
    task dies.
    """

    def __init__(self) -> None:
        self.stored: dict[Bucket, int] = {}
        self.limit: int | None = None

    def put(self, item: Outgoing) -> None:
        due = self.stored.get(item.bucket, 0)
        assert item.sequence is not None
        if item.sequence > due or item.sequence < due - REMEMBERED:
            raise OutOfSequence(writer="1", bucket=str(item.bucket), got=item.sequence, expected=due)
        if item.sequence == due:
            if self.limit is not None and sum(self.stored.values()) >= self.limit:
                raise ConnectionError("the task was killed")
            self.stored[item.bucket] = due + 1


class ServerSender(PutSender):
    def __init__(self, server: Server) -> None:
        self.server = server

    def drive(self, take: Callable[[], Outgoing | None]) -> None:
        while (item := take()) is not None:
            self.server.put(item)

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize("killed_after", [0, 1, 7, 15, 19])
def test_a_retry_stores_each_batch_once(killed_after: int) -> None:
    server, pieces = Server(), [(Bucket("p", n % 2), ROW) for n in range(20)]

    def attempt() -> None:
        task = TaskPut(lambda: ServerSender(server))
        for at in range(0, len(pieces), 5):
            task.send(pieces[at : at + 5])

    server.limit = killed_after
    with pytest.raises(ConnectionError):
        attempt()
    server.limit = None
    attempt()
    assert server.stored == {Bucket("p", 0): 10, Bucket("p", 1): 10}


def test_a_writer_that_the_server_forgot_is_an_error() -> None:
    server = Server()
    task = TaskPut(lambda: ServerSender(server))
    task.send([(Bucket("", 0), ROW)])
    server.stored.clear()
    with pytest.raises(OutOfSequence):
        task.send([(Bucket("", 0), ROW)])
