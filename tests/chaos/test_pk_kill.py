# SPDX-License-Identifier: Apache-2.0
"""kill -9 under concurrent writers to a PK table: nothing acknowledged is lost, no put is there by half, KV is the log
folded.
"""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from lakeward.changelog import Fold
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import FAULTS_ENV, Bucket
from lakeward_testing.waiting import wait_until

CHILD = Path(__file__).with_name("pk_writers.py")
POINTS = {
    "hotlog.before-write": 30,
    "hotlog.after-write": 30,
    "hotlog.before-fsync": 30,
    "hotlog.after-fsync": 30,
    "hotlog.roll": 2,
    "kv.after-append": 30,
    "kv.write": 30,
    "kv.checkpoint": 5,
}
"""Where a child may be killed, and at which hit at the latest."""

Rows = dict[int, tuple[Any, Any]]


def load_child() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pk_writers", CHILD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


child = load_child()


def acknowledged(notes: Path) -> dict[int, list[tuple[int, int, int]]]:
    """Per writer what it was told, in order: sequence, start, stop."""
    told: dict[int, list[tuple[int, int, int]]] = {w: [] for w in range(child.WRITERS)}
    for line in notes.read_text().splitlines() if notes.exists() else ():
        writer, *rest = map(int, line.split())
        told[writer].append((rest[0], rest[1], rest[2]))
    return told


def run_and_kill(folder: Path, notes: Path, chance: random.Random) -> bool:
    """At a fault point's n-th hit, or from outside once so many puts were acknowledged. False: it came to its end
    before.
    """
    firsts = [str(len(told)) for told in acknowledged(notes).values()]
    before = sum(map(int, firsts))
    point = chance.choice([*POINTS, None, None])
    env = (
        {**os.environ, FAULTS_ENV: f"{point}=kill,hit={chance.randint(1, POINTS[point])}"}
        if point
        else dict(os.environ)
    )
    process = subprocess.Popen([sys.executable, str(CHILD), str(folder), str(notes), *firsts], env=env)
    wanted = before + chance.randint(0, 60)

    def is_time() -> bool:
        return process.poll() is not None or (point is None and sum(map(len, acknowledged(notes).values())) >= wanted)

    try:
        wait_until(is_time, what="the child's writers")
    finally:
        process.kill()
        status = process.wait()
    assert status in (0, -signal.SIGKILL)
    return status != 0


def applied(writer: int, count: int) -> Rows:
    """A writer's rows after its first `count` puts."""
    rows: Rows = {}
    for sequence in range(count):
        kind, puts = child.plan_put(writer, sequence)
        for row in puts:
            if kind == "delete":
                rows.pop(row["k"], None)
            elif kind == "upsert":
                rows[row["k"]] = (row["s"], row["v"])
            else:
                rows[row["k"]] = (rows.get(row["k"], (None, None))[0], row["v"])
    return rows


def looked_up(store: EmbeddedStore, writer: int) -> tuple[Rows, set[int]]:
    keys = child.batch([{"k": writer * 1000 + i} for i in range(child.KEYS)])
    found = store.lookup(child.TABLE, child.bucket_of(writer), keys).to_pylist()
    return {r["k"]: (r["s"], r["v"]) for r in found}, {r["__offset"] for r in found}


def live_offsets(batches: list[pa.RecordBatch], end: int) -> set[int]:
    fold = Fold(0, end)
    for batch in batches:
        fold.see(batch)
    fold.seal()
    return {offset for batch in batches for offset in fold.live(batch).column("__offset").to_pylist()}


def check(folder: Path, notes: Path) -> None:
    store = EmbeddedStore.open(folder, child.OPTIONS)
    try:
        told = acknowledged(notes)
        offsets: dict[int, set[int]] = {n: set() for n in range(child.BUCKETS)}
        for writer in range(child.WRITERS):
            rows, held = looked_up(store, writer)
            offsets[child.bucket_of(writer).number] |= held
            done = len(told[writer])
            assert [sequence for sequence, _, _ in told[writer]] == list(range(done))
            # a put that was under way is there wholly or not at all
            assert rows in (applied(writer, done), applied(writer, done + 1))
        for number, bounds in ((b.number, b_) for b, b_ in store.freeze(child.TABLE).items()):
            batches = list(store.read_log(child.TABLE, Bucket("", number), 0, bounds.end))
            assert live_offsets(batches, bounds.end) == offsets[number]
            assert all(
                stop <= bounds.end for w, puts in told.items() if w % child.BUCKETS == number for _, _, stop in puts
            )
    finally:
        store.close()


def kill_often(folder: Path, seed: int, times: int) -> None:
    chance, data, notes = random.Random(seed), folder / "data", folder / "notes"
    store = EmbeddedStore.open(data, child.OPTIONS)
    store.create_table(child.TABLE)
    store.close()
    kills = 0
    while kills < times:  # on a busy machine a child may come to its end before a kill from outside
        kills += run_and_kill(data, notes, chance)
        check(data, notes)
    assert sum(map(len, acknowledged(notes).values())) > times


def test_five_kills(tmp_path: Path) -> None:
    kill_often(tmp_path, seed=4, times=5)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_a_hundred_kills(tmp_path: Path, seed: int) -> None:
    kill_often(tmp_path, seed=100 + seed, times=10)
