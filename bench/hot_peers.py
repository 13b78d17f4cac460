# SPDX-License-Identifier: Apache-2.0
"""The processes that `bench.hot_store` measures: the store behind Flight, and the raw limits beside it.

`python -m bench.hot_peers store|raw|memory FOLDER`: prints its port, ends when its standard input does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.flight as flight

from lakeward.hot.embedded.options import StoreOptions
from lakeward.hot.embedded.serve.service import FlightService
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.protocol.auth import TokenSet
from lakeward.server.admission.interpreter import share_turns
from lakeward.tiering.work.heap import keep_freed_memory


class RawFiles(flight.FlightServerBase):  # type: ignore[misc]
    """The limit of appends: what came is written to a file and fsynced before it is acknowledged, and nothing else is
    done.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__("grpc://127.0.0.1:0")
        folder.mkdir(parents=True, exist_ok=True)
        self._files = [os.open(folder / str(n), os.O_WRONLY | os.O_CREAT | os.O_APPEND) for n in range(4)]

    def do_put(
        self,
        context: object,
        descriptor: object,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        for chunk in reader:
            file = self._files[int(chunk.app_metadata.to_pybytes())]
            os.write(file, chunk.data.serialize())
            os.fdatasync(file)
            writer.write(b"ok")


class RawMemory(flight.FlightServerBase):  # type: ignore[misc]
    """The limit of reads: batches that were put are kept in memory and handed out again."""

    def __init__(self) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._schema: pa.Schema | None = None
        self._batches: list[pa.RecordBatch] = []

    def do_put(
        self, context: object, descriptor: object, reader: flight.MetadataRecordBatchReader, writer: object
    ) -> None:
        self._schema = reader.schema
        self._batches = [chunk.data for chunk in reader]

    def do_get(self, context: object, ticket: object) -> flight.GeneratorStream:
        return flight.GeneratorStream(self._schema, iter(self._batches))


@contextmanager
def peer(kind: str, folder: Path) -> Iterator[tuple[int, psutil.Process]]:
    """(port, process) of a peer that lives for the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.hot_peers", kind, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield int(process.stdout.readline()), psutil.Process(process.pid)
    finally:
        process.stdin.close()
        process.wait(120)
        process.stdout.close()


def main(kind: str, folder: Path) -> None:
    if kind == "store":
        serve_store(folder)
        return
    server: flight.FlightServerBase = RawFiles(folder) if kind == "raw" else RawMemory()
    print(server.port, flush=True)
    sys.stdin.read()
    server.shutdown()


def serve_store(folder: Path) -> None:
    from bench.hot_store import all_tables

    store = EmbeddedStore.open(folder, StoreOptions())
    for table in all_tables():
        store.create_table(table)
    share_turns()  # as a server does
    keep_freed_memory()
    service = FlightService(store, TokenSet.parse([]))
    print(service.port, flush=True)
    sys.stdin.read()
    service.shutdown()
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
