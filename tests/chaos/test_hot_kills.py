# SPDX-License-Identifier: Apache-2.0
"""`kill -9` under concurrent writers, at seeded moments: no acknowledged row is lost, no half batch is seen, none lands
twice.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.hot.embedded.options import StoreOptions
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import (
    OFFSET,
    Bucket,
    Column,
    Schema,
    TableDescriptor,
    TableInfo,
    TablePath,
    new_table_id,
    parse_type,
)
from tests.chaos.hot_worker import SETTINGS, rows_of

POINTS = (
    "hotlog.before-write",
    "hotlog.after-write",
    "hotlog.before-fsync",
    "hotlog.after-fsync",
    "hotlog.roll",
    "remote.before-upload",
    "remote.before-manifest",
    "remote.after-manifest",
    "hotlog.before-drop-local",
)
WRITERS = {1: 0, 2: 0, 3: 1, 2**40: 1}
"""Writer -> bucket: two share each."""


class Yard:
    """One folder through many lives of the process that writes to it, and what that process said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = TableInfo(
            path=TablePath("db", "t"),
            table_id=new_table_id(),
            descriptor=TableDescriptor(
                schema=Schema(
                    columns=tuple(Column(name=n, type=parse_type(t)) for n, t in (("id", "BIGINT"), ("text", "STRING")))
                ),
                bucket_count=2,
            ),
        )
        self.acknowledged: dict[tuple[int, int], tuple[int, int]] = {}
        self.due = dict.fromkeys(WRITERS, 0)
        store = self.open()
        store.create_table(self.table)
        store.close()
        self.worker = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.hot_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def open(self) -> EmbeddedStore:
        return EmbeddedStore.open(self.folder, StoreOptions.with_settings(SETTINGS))

    def live(self, faults: str, kill_after: int | None) -> bool:
        """One life; true if it ended by a kill. `kill_after`: so many acknowledgements, then a kill from outside."""
        assert self.worker.stdin is not None
        assert self.worker.stdout is not None
        writers = {str(w): (bucket, self.due[w]) for w, bucket in WRITERS.items()}
        self.worker.stdin.write(json.dumps({"folder": str(self.folder), "writers": writers, "faults": faults}) + "\n")
        self.worker.stdin.flush()
        child, heard, killed = 0, 0, True
        for line in self.worker.stdout:
            kind, *numbers = line.split()
            if kind == "ended":
                break
            if kind == "pid":
                child = int(numbers[0])
            elif kind == "done":
                killed = False
            elif kind == "failed":
                pytest.fail(line)
            else:
                heard += 1
                self.hear(kind, *map(int, numbers))
            if child and kill_after is not None and heard >= kill_after:
                os.kill(child, signal.SIGKILL)
                kill_after = None
        return killed

    def hear(self, kind: str, writer: int, sequence: int, start: int, stop: int) -> None:
        if kind == "again":
            assert self.acknowledged[writer, sequence] == (start, stop), "a retried put has its first offsets"
            return
        assert sequence == self.due[writer]
        self.acknowledged[writer, sequence] = (start, stop)
        self.due[writer] += 1

    def check(self) -> None:
        store = self.open()
        try:
            assert store.stopped_buckets(self.table) == {}
            for number in set(WRITERS.values()):
                bucket = Bucket("", number)
                bounds = store.freeze(self.table)[bucket]
                stored = [
                    r
                    for b in store.read_log(self.table, bucket, bounds.start, bounds.end)
                    for r in b.select(["id", OFFSET]).to_pylist()
                ]
                self.check_bucket(number, [(r["id"], r[OFFSET]) for r in stored])
        finally:
            store.close()

    def check_bucket(self, number: int, stored: list[tuple[int, int]]) -> None:
        puts: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for id, offset in stored:
            writer, rest = divmod(id, 1_000_000)
            puts.setdefault((writer, rest // 100), []).append((rest % 100, offset))
        for (writer, sequence), found in puts.items():
            start = found[0][1]
            assert found == [(i, start + i) for i in range(rows_of(sequence))], "whole, once, and in one piece"
            assert sequence <= self.due[writer], "at most the one that was under way is there unacknowledged"
        for (writer, sequence), (start, stop) in self.acknowledged.items():
            if WRITERS[writer] == number and rows_of(sequence):
                assert puts[writer, sequence][0][1] == start
                assert stop - start == rows_of(sequence)

    def close(self) -> None:
        assert self.worker.stdin is not None
        self.worker.stdin.close()
        self.worker.wait(120)
        if self.worker.stdout is not None:
            self.worker.stdout.close()


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path / "data")
    yield made
    made.close()


def run(yard: Yard, seed: int, kills: int) -> None:
    chance, done = random.Random(seed), 0
    while done < kills:
        if chance.random() < 0.5:
            died = yard.live("", kill_after=chance.randint(1, 150))
        else:
            point = chance.choice(POINTS)
            died = yard.live(
                f"{point}=kill,hit={chance.randint(1, 40 if point.startswith('hotlog.') and 'f' in point else 3)}", None
            )
        done += died
        yard.check()
    assert sum(yard.due.values()) > kills


def test_six_kills(yard: Yard) -> None:
    run(yard, seed=20_261_115, kills=6)


@pytest.mark.soak
def test_a_hundred_kills(yard: Yard) -> None:
    run(yard, seed=1, kills=100)
