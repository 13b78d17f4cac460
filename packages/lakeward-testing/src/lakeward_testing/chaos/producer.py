# SPDX-License-Identifier: Apache-2.0
"""A producer process: writes rows that say who wrote them and when, and keeps a record of its own.

`python -m lakeward_testing.chaos.producer URL TABLE log|pk NUMBER RECORD SEED`, until SIGTERM.
"""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from lakeward.client import Client, Table, connect
from lakeward.errors import LakewardError
from lakeward.model import StopSignal
from lakeward_testing.chaos.record import ACKED, DOUBTED, TRIED, RecordWriter
from lakeward_testing.waiting import wait_until

KEYS = 40
KEY_STRIDE = 1_000_000
"""Producer n owns the keys from n * stride on: no two write the same key."""

PARTITIONS = ("east", "west")
PAUSE_S = 0.03


def value_of(producer: int, row: int, version: int = 0) -> str:
    """A row's value follows from its address, so that a reader can tell an altered one."""
    return f"p{producer}-{row}-{version}-" + "x" * ((row * 7 + version) % 23)


def partition_of(key: int) -> str:
    return PARTITIONS[key % len(PARTITIONS)]


class WrittenTable(Protocol):
    """A table of whatever store. Each call returns when the rows are durable, or raises a `LakewardError`."""

    def append(self, rows: Any) -> object: ...

    def upsert(self, rows: Any) -> object: ...

    def delete(self, keys: Any) -> object: ...


class Producer:
    """`step` makes one change. A change in doubt is never followed by another of the same key."""

    def __init__(self, table: WrittenTable, number: int, record: RecordWriter, seed: int, *, is_pk: bool) -> None:
        self._table, self._number, self._record, self._is_pk = table, number, record, is_pk
        self._chance = random.Random(seed)  # noqa: S311 - rows, not secrets
        self._change, self._row = 0, 0
        self._fresh = number * KEY_STRIDE
        self._live: list[int] = []
        self._dead: list[int] = []

    def step(self) -> None:
        if self._is_pk:
            self._step_keyed()
        else:
            self._append()

    def _append(self) -> None:
        rows = range(self._row, self._row + self._chance.randint(1, 40))
        self._row = rows.stop
        values = [{"producer": self._number, "row": r, "value": value_of(self._number, r)} for r in rows]
        self._send("append", list(rows), lambda: self._table.append(values))

    def _step_keyed(self) -> None:
        while len(self._live) < KEYS:
            self._live.append(self._fresh)
            self._fresh += 1
        keys = self._chance.sample(self._live, self._chance.randint(1, 10))
        if self._chance.random() < 0.2:
            sent = self._send("delete", keys, lambda: self._table.delete([_key(k) for k in keys]))
        else:
            rows = [
                {**_key(k), "version": self._change, "value": value_of(self._number, k, self._change)} for k in keys
            ]
            sent = self._send("upsert", keys, lambda: self._table.upsert(rows))
        if not sent:
            self._live = [k for k in self._live if k not in keys]

    def _send(self, kind: str, rows: list[int], call: Any) -> bool:
        number, self._change = self._change, self._change + 1
        self._record.note(TRIED, number, kind=kind, rows=rows)
        try:
            call()
        except LakewardError as error:
            self._record.note(DOUBTED, number, error=f"{error.code}: {error}"[:300])
            return False
        self._record.note(ACKED, number)
        return True


def _key(key: int) -> dict[str, Any]:
    return {"part": partition_of(key), "id": key}


def main(arguments: Sequence[str]) -> None:
    url, path, number, record, seed = (
        arguments[0],
        arguments[1],
        int(arguments[2]),
        Path(arguments[3]),
        int(arguments[4]),
    )
    stopping = StopSignal(signal.SIGTERM)
    with connect(url) as client:
        table = _open(client, path)
        producer = Producer(table, number, RecordWriter(record), seed, is_pk=table.info.is_pk)
        while not stopping.wait(PAUSE_S):
            producer.step()


def _open(client: Client, path: str) -> Table:
    """A hurt server may take a while to say what the table is."""
    return wait_until(lambda: client.table(path), what=f"table {path}", tolerate=(LakewardError,))


if __name__ == "__main__":
    main(sys.argv[1:])
