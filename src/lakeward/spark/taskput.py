# SPDX-License-Identifier: Apache-2.0
"""Puts of one Spark task under an identity that every attempt shares: each bucket's batches are numbered from 0, and
what an earlier attempt stored is passed over, however much that was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import pyarrow as pa

from lakeward.client.sender import Outgoing, PutSender
from lakeward.errors import OutOfSequence
from lakeward.model import Bucket
from lakeward.protocol.flight import PutAck

Numbered = tuple[Bucket, int, pa.RecordBatch]


class TaskPut:
    """`new_sender` makes a sender under the task's identity. The server remembers a writer's last few puts per bucket
    and tells which one is due for older ones: everything below that is stored."""

    def __init__(self, new_sender: Callable[[], PutSender]) -> None:
        self._new_sender = new_sender
        self._sender: PutSender | None = None
        self._next: dict[Bucket, int] = defaultdict(int)
        self._stored: dict[Bucket, int] = defaultdict(int)

    def send(self, pieces: Iterable[tuple[Bucket, pa.RecordBatch]]) -> None:
        """Durable when it returns. Raises `OutOfSequence` where the server has forgotten the writer, and what
        `PutSender` raises.
        """
        waiting = [self._number(bucket, batch) for bucket, batch in pieces]
        while waiting:
            waiting = [(b, n, batch) for b, n, batch in waiting if n >= self._stored[b]]
            try:
                self._drive(waiting)
                return
            except OutOfSequence as error:
                self.close()
                if error.got >= error.expected:
                    raise
                self._pass_over(error, waiting)

    def close(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()

    def _number(self, bucket: Bucket, batch: pa.RecordBatch) -> Numbered:
        number = self._next[bucket]
        self._next[bucket] = number + 1
        return bucket, number, batch

    def _drive(self, waiting: list[Numbered]) -> None:
        if self._sender is None:
            self._sender = self._new_sender()
        source = iter(waiting)

        def take() -> Outgoing | None:
            outgoing = next(source, None)
            return None if outgoing is None else Outgoing(outgoing[0], outgoing[2], _ignore, sequence=outgoing[1])

        self._sender.drive(take)

    def _pass_over(self, error: OutOfSequence, waiting: list[Numbered]) -> None:
        meant = next((bucket for bucket, _, _ in waiting if str(bucket) == error.bucket), None)
        if meant is None:
            raise error
        self._stored[meant] = max(self._stored[meant], error.expected)


def _ignore(_ack: PutAck) -> None:
    """The task's rows are durable as a whole when its last batch is."""
