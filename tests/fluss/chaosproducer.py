# SPDX-License-Identifier: Apache-2.0
"""A producer of the chaos lab on a Fluss cluster: changes through pyfluss without end, each in the producer's record.

`python -m tests.fluss.chaosproducer BOOTSTRAP TABLE NUMBER RECORD SEED log|pk`, until SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lakeward.errors import ServerUnavailable
from lakeward.model import StopSignal
from lakeward_testing.chaos.producer import PAUSE_S, Producer
from lakeward_testing.chaos.record import RecordWriter
from tests.fluss.steps import DATABASE

ANSWER_S = 20.0
"""A leader that is gone has a successor by then; later the change is in doubt."""


class PyflussTable:
    """After a call that failed the next one begins with a new connection."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._bootstrap, self._name = bootstrap, name
        self._loop = asyncio.new_event_loop()
        self._table: Any = None

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._write(lambda table: table.new_append().create_writer(), "append", rows)

    def upsert(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._write(lambda table: table.new_upsert().create_writer(), "upsert", rows)

    def delete(self, keys: Sequence[Mapping[str, Any]]) -> None:
        self._write(lambda table: table.new_upsert().create_writer(), "delete", keys)

    def _write(self, open_writer: Callable[[Any], Any], call: str, rows: Sequence[Mapping[str, Any]]) -> None:
        try:
            self._loop.run_until_complete(asyncio.wait_for(self._send(open_writer, call, rows), ANSWER_S))
        except Exception as error:  # pyfluss has errors of its own, and of the runtime below it
            self._table = None
            raise ServerUnavailable(address=self._bootstrap, what=call, reason=repr(error)[:300]) from error

    async def _send(self, open_writer: Callable[[Any], Any], call: str, rows: Sequence[Mapping[str, Any]]) -> None:
        if self._table is None:
            self._table = await self._open()
        writer = open_writer(self._table)
        handles = [getattr(writer, call)(dict(row)) for row in rows]
        await writer.flush()
        for handle in handles:
            await handle.wait()

    async def _open(self) -> Any:
        import fluss

        connection: Awaitable[Any] = fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": self._bootstrap}))
        return await (await connection).get_table(fluss.TablePath(DATABASE, self._name))


def main(arguments: Sequence[str]) -> None:
    bootstrap, name, number, record, seed, kind = arguments
    stopping = StopSignal(signal.SIGTERM)
    table = PyflussTable(bootstrap, name)
    producer = Producer(table, int(number), RecordWriter(Path(record)), int(seed), is_pk=kind == "pk")
    while not stopping.wait(PAUSE_S):
        producer.step()


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # pyfluss aborts now and then while the interpreter ends
