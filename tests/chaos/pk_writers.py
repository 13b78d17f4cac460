# SPDX-License-Identifier: Apache-2.0
"""A child process for `test_pk_kill`: writers that put into one PK table and note what they were told, until killed.

What put number n of a writer does follows from the two numbers alone, so that the parent can work it out too.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakeward.hot.embedded.log.writers import Appended, WriterSequence
from lakeward.hot.embedded.options import StoreOptions
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import Bucket, Column, Int64Type, Schema, StringType, TableDescriptor, TableId, TableInfo, TablePath

WRITERS, KEYS, PUTS, BUCKETS = 3, 12, 40, 2

SCHEMA = Schema(
    columns=(
        Column(name="k", type=Int64Type(nullable=False)),
        Column(name="s", type=StringType()),
        Column(name="v", type=Int64Type()),
    )
)
TABLE = TableInfo(
    path=TablePath("db", "kill"),
    table_id=TableId("kill-1"),
    descriptor=TableDescriptor(schema=SCHEMA, primary_key=("k",), bucket_count=BUCKETS),
)
OPTIONS = StoreOptions.with_settings({"log.segment.file-size": "8kb"}, upkeep=True)
_FIELDS = {"k": pa.int64(), "s": pa.string(), "v": pa.int64()}


def plan_put(writer: int, sequence: int) -> tuple[str, list[dict[str, Any]]]:
    """What a put does: upsert, partial or delete, and its rows. A writer has keys of its own."""
    chance = random.Random(writer * 1_000_003 + sequence)
    keys = [writer * 1000 + chance.randrange(KEYS) for _ in range(chance.randint(1, 8))]
    kind = chance.choice(["upsert", "upsert", "partial", "delete"])
    if kind == "upsert":
        return kind, [{"k": k, "s": f"{writer}-{sequence}", "v": i} for i, k in enumerate(keys)]
    return kind, [{"k": k, "v": -sequence} if kind == "partial" else {"k": k} for k in keys]


def bucket_of(writer: int) -> Bucket:
    return Bucket("", writer % BUCKETS)


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema([(n, t) for n, t in _FIELDS.items() if n in rows[0]]))


def put(store: EmbeddedStore, writer: int, sequence: int) -> Appended:
    kind, rows = plan_put(writer, sequence)
    number = WriterSequence(writer, sequence)
    if kind == "delete":
        return store.delete(TABLE, bucket_of(writer), batch(rows), number)
    return store.upsert(TABLE, bucket_of(writer), batch(rows), ["v"] if kind == "partial" else None, number)


def write(store: EmbeddedStore, writer: int, first: int, notes: int) -> None:
    for sequence in range(first, first + PUTS):
        appended = put(store, writer, sequence)
        os.write(notes, f"{writer} {sequence} {appended.start} {appended.stop}\n".encode())


def snapshot(store: EmbeddedStore, ending: threading.Event) -> None:
    while not ending.wait(0.02):
        for number in range(BUCKETS):
            store.take_snapshot(TABLE, Bucket("", number), "reader")
        store.release_snapshots(TABLE, "reader")


def main(folder: str, notes_path: str, *firsts: str) -> None:
    store = EmbeddedStore.open(Path(folder), OPTIONS)
    if not store.list_tables():
        store.create_table(TABLE)
    notes = os.open(notes_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    ending = threading.Event()
    threads = [threading.Thread(target=write, args=(store, w, int(first), notes)) for w, first in enumerate(firsts)]
    reader = threading.Thread(target=snapshot, args=(store, ending))
    for thread in (reader, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    ending.set()
    reader.join()
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
