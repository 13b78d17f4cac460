# SPDX-License-Identifier: Apache-2.0
"""A process that writes to an embedded store until it is killed, telling each acknowledgement through a pipe.

It is started once and forks a worker per command line (JSON), so that a kill costs no imports. The worker's lines: `ack
WRITER SEQUENCE START STOP`, `again ...` for a put of an earlier life that it retried, `failed WHY`, `done` if nobody
killed it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakeward.errors import LakewardError
from lakeward.hot.embedded.log.writers import Appended, WriterSequence
from lakeward.hot.embedded.options import StoreOptions
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import Bucket, TableInfo, TablePath
from lakeward_testing.faults import Faults

SETTINGS = {"log.segment.file-size": "16kb"}
PUTS = 150
"""Per writer and life."""


def rows_of(sequence: int) -> int:
    """How many rows a put has: every fourth has none."""
    return sequence % 4 * 3


def make_rows(writer: int, sequence: int) -> pa.RecordBatch:
    ids = [writer * 1_000_000 + sequence * 100 + i for i in range(rows_of(sequence))]
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "text": pa.array(["x" * 40] * len(ids), pa.string())})


def write_all(
    store: EmbeddedStore, table: TableInfo, writer: int, bucket: Bucket, due: int, tell: Callable[..., None]
) -> None:
    """One writer's life: its last acknowledged put again, then on from the one that is due."""
    try:
        if due:
            tell(
                "again",
                writer,
                due - 1,
                store.append(table, bucket, make_rows(writer, due - 1), WriterSequence(writer, due - 1)),
            )
        for sequence in range(due, due + PUTS):
            tell(
                "ack",
                writer,
                sequence,
                store.append(table, bucket, make_rows(writer, sequence), WriterSequence(writer, sequence)),
            )
    except LakewardError as error:
        os.write(1, f"failed {error}\n".encode())
        os._exit(1)


def work(command: dict[str, Any]) -> None:
    """The life of a worker. `command`: folder, writers (id -> bucket, due), faults."""
    faults = Faults.from_text(command["faults"])
    faults.__enter__()
    store = EmbeddedStore.open(Path(command["folder"]), StoreOptions.with_settings(SETTINGS))
    table = store.load_table(TablePath("db", "t"))
    threads = [
        threading.Thread(target=write_all, args=(store, table, int(writer), Bucket("", bucket), due, tell))
        for writer, (bucket, due) in command["writers"].items()
    ]
    for thread in threads:
        thread.start()
    while any(t.is_alive() for t in threads):
        store.upkeep.upload()
    store.close()
    os.write(1, b"done\n")


def tell(kind: str, writer: int, sequence: int, put: Appended) -> None:
    """One write call: lines below 4 kB do not mix in a pipe."""
    os.write(1, f"{kind} {writer} {sequence} {put.start} {put.stop}\n".encode())


def serve() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                work(json.loads(line))
            finally:
                os._exit(0)
        os.write(1, f"pid {child}\n".encode())
        os.waitpid(child, 0)
        os.write(1, b"ended\n")


if __name__ == "__main__":
    serve()
