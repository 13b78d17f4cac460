# SPDX-License-Identifier: Apache-2.0
"""File handles: as many as are in use, however many buckets there are."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from lakeward.errors import InvalidTable
from lakeward.hot.embedded.openfiles import OpenFiles, default_budget, raise_limit
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import Bucket, TableInfo
from tests.unit.hot.embedded.yard import StubGuard, Yard, rows

BUCKETS, BUDGET = 32, 64


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def store(yard: Yard) -> EmbeddedStore:
    yard.handles = BUDGET
    return yard.open()


@pytest.fixture
def table(yard: Yard, store: EmbeddedStore) -> TableInfo:
    table = yard.table(primary_key=("id",), buckets=BUCKETS)
    store.create_table(table)
    return table


def keys(*ids: int) -> pa.RecordBatch:
    return rows(*ids).select(["id"])


def fill(store: EmbeddedStore, table: TableInfo, text: str = "x") -> None:
    for n in range(BUCKETS):
        store.upsert(table, Bucket("", n), rows(n, text=text))


def found(store: EmbeddedStore, table: TableInfo) -> list[tuple[int, str]]:
    batches = [store.lookup(table, Bucket("", n), keys(n)) for n in range(BUCKETS)]
    return [(r["id"], r["text"]) for b in batches for r in b.to_pylist()]


def test_lookups_of_what_was_never_written_open_nothing_and_make_no_bucket(
    yard: Yard, store: EmbeddedStore, table: TableInfo
) -> None:
    before = handles()
    for n in range(BUCKETS):
        assert store.lookup(table, Bucket("", n), keys(1)).num_rows == 0
    written = yard.table(name="w", primary_key=("id",), buckets=2)
    store.create_table(written)
    store.upsert(written, Bucket("", 0), rows(1))
    answers = [store.lookup(written, Bucket("", n), keys(1)) for n in (0, 1)]
    assert answers[0].schema == answers[1].schema
    assert (handles() - before < 16, list(yard.folder.glob(f"tables/{table.table_id}/*"))) == (True, [])


def test_open_files_stay_in_the_budget_and_every_bucket_answers(
    yard: Yard, store: EmbeddedStore, table: TableInfo
) -> None:
    before = handles()
    for text in ("old", "new"):
        fill(store, table, text)
        assert handles() - before <= BUDGET + 16
        assert found(store, table) == [(n, text) for n in range(BUCKETS)]
        assert handles() - before <= BUDGET + 16


@pytest.mark.parametrize("stop", ["killed", "orderly"])
def test_a_restart_and_upkeep_open_no_bucket(yard: Yard, store: EmbeddedStore, table: TableInfo, stop: str) -> None:
    yard.settings["table.log.ttl"] = "1h"
    fill(store, table)
    folder = yard.crash(store) if stop == "killed" else yard.folder
    store.close()
    before = handles()
    again = yard.open(folder)
    again.set_retention(StubGuard())
    yard.clock.advance(7200)
    again.upkeep.expire()
    again.upkeep.tend_keys()
    again.release_snapshots(table, "nobody")
    assert (handles() - before < 8, again.upkeep.failures) == (True, {})
    assert found(again, table) == [(n, "x") for n in range(BUCKETS)]


def test_what_nobody_uses_is_closed_and_opened_again(store: EmbeddedStore, table: TableInfo) -> None:
    store.upsert(table, Bucket("", 0), rows(0))
    before, files = handles(), store.hot_table(table)._services.open_files
    held = files.handles
    files.close_unused(idle_s=-1.0)
    assert (files.handles, handles()) == (0, before - held)
    store.upsert(table, Bucket("", 0), rows(0, text="again"))
    assert store.lookup(table, Bucket("", 0), keys(0)).column("text").to_pylist() == ["again"]
    assert store.take_snapshot(table, Bucket("", 0), "me") is not None


def test_threads_that_write_and_look_up_meet_no_closed_file(store: EmbeddedStore, table: TableInfo) -> None:
    """Each bucket has one writer and one reader; room is made all the time."""
    done = threading.Event()
    files = store.hot_table(table)._services.open_files

    def write(n: int) -> None:
        for turn in range(12):
            store.upsert(table, Bucket("", n), rows(n, text=str(turn)))

    def look(n: int) -> None:
        seen = -1
        while not done.is_set():
            for row in store.lookup(table, Bucket("", n), keys(n)).to_pylist():
                assert int(row["text"]) >= seen
                seen = int(row["text"])

    def press() -> None:
        while not done.is_set():
            files.close_unused(idle_s=-1.0)

    with ThreadPoolExecutor(9) as pool:
        readers = [pool.submit(look, n) for n in range(4)] + [pool.submit(press)]
        writers = [pool.submit(write, n) for n in range(4)]
        try:
            for writer in writers:
                writer.result()
        finally:
            done.set()
        for reader in readers:
            reader.result()
    assert found(store, table) == [(n, "11") for n in range(4)]


def test_a_table_of_more_buckets_than_files_may_be_open_is_refused(yard: Yard, store: EmbeddedStore) -> None:
    with pytest.raises(InvalidTable, match="bucket count '33': this server may keep files of 32 buckets open"):
        store.create_table(yard.table(name="wide", buckets=33))


@pytest.fixture
def low_limit() -> Iterator[int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_limit_is_raised_and_half_of_it_is_for_buckets(low_limit: int) -> None:
    assert default_budget() == 256
    assert raise_limit() == low_limit
    assert default_budget() == min(low_limit // 2, 16_384)


class _Held:
    def __init__(self, used_at: float, *, busy: bool = False) -> None:
        self.used_at, self.busy, self.handles = used_at, busy, 10

    def close_idle(self) -> bool:
        if not self.busy:
            self.handles = 0
        return not self.busy


def test_those_idle_longest_go_first_and_those_in_use_stay() -> None:
    files = OpenFiles(30)
    held = [_Held(1.0, busy=True), _Held(4.0), _Held(2.0), _Held(3.0)]
    for one in held:
        files.add(one)
    files.make_room()
    assert [one.handles for one in held] == [10, 10, 0, 0]
