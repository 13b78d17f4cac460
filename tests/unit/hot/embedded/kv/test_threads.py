# SPDX-License-Identifier: Apache-2.0
"""Puts, lookups and snapshots of one bucket from several threads, while KV now and then fails."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lakeward.changelog import Fold
from lakeward.errors import BucketStopped, KvFailed
from lakeward.hot.embedded.kv.kvoptions import KvOptions
from lakeward.hot.embedded.log.writers import WriterSequence
from lakeward_testing.faults import Faults

WRITERS, PUTS, KEYS = 3, 40, 10


def put(table: Any, writer: int, sequence: int) -> None:
    rows = [{"k": k, "s": f"{writer}-{sequence}", "v": sequence} for k in range(sequence % 3, KEYS)]
    while True:
        try:
            table.upsert(*rows, writer=WriterSequence(writer, sequence))
        except (KvFailed, BucketStopped):
            continue
        return


def put_all(table: Any, writer: int) -> None:
    for sequence in range(PUTS):
        put(table, writer, sequence)


def read(table: Any, writing: threading.Event) -> int:
    """Each look-up finds whole rows, whatever happens beside it."""
    found = 0
    while writing.is_set() or not found:
        try:
            for row in table.lookup(*range(KEYS)):
                assert row["s"].endswith(f"-{row['v']}")
                found += 1
            snapshot = table.kv.take_snapshot("reader")
            if snapshot is not None:
                assert len(table.snapshot_rows(snapshot.snapshot_id)) == snapshot.rows
            table.kv.snapshots.release("reader")
        except (KvFailed, BucketStopped):
            continue
    return found


def test_threads_share_a_bucket_that_fails_now_and_then(table: Any) -> None:
    table.options = KvOptions(flush_bytes=2000)
    table.reopen()
    writing = threading.Event()
    writing.set()
    with Faults(seed=3) as faults, ThreadPoolExecutor(WRITERS + 1) as pool:
        for point in ("kv.write", "kv.flush", "kv.checkpoint", "kv.get"):
            faults.arm(point, chance=0.05, times=None, error=lambda: OSError("for a moment"))
        reader = pool.submit(read, table, writing)
        writers = [pool.submit(put_all, table, w) for w in range(WRITERS)]
        for writer in writers:
            writer.result()
        writing.clear()
        assert reader.result() > 0
    batches = list(table.log.read(0, table.log.end, unsynced=True))
    fold = Fold(0, table.log.end)
    for batch in batches:
        fold.see(batch)
    fold.seal()
    live = {r["k"]: (r["s"], r["__offset"]) for b in batches for r in fold.live(b).to_pylist()}
    assert {r["k"]: (r["s"], r["__offset"]) for r in table.lookup(*range(KEYS))} == live
    assert table.kv.rows == len(live) == KEYS
