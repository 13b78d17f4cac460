# SPDX-License-Identifier: Apache-2.0
"""A day of rounds in minutes with maintenance on: nothing that readers or rounds pay for grows.

`LAKEWARD_SOAK_ROUNDS=500` makes it shorter."""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bench.maintenance import EXPIRY, Spent, Yard, best_s, rows
from lakeward.model.table import TablePath
from lakeward.protocol.heartbeat import TableFinished

ROUNDS = int(os.environ.get("LAKEWARD_SOAK_ROUNDS", "10000"))
KEYS, ROWS, LOOKS = 300_000, 50, 40
PATH = "b.day"
SCAN = {False: 1.5, True: 1.75}
"""A scan beside a freshly written table, for log and PK tables. Files with fewer deleted rows than compaction waits for
cost a filter over all of their rows: with what ten small files cost beside it 1.53 was measured after 100 rounds."""


@pytest.mark.soak
@pytest.mark.parametrize("keyed", [False, True], ids=["log", "pk"])
def test_a_day_of_rounds_costs_nothing(keyed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        yard, spent = Yard(Path(folder)), Spent()
        try:
            run_day(yard, spent, Path(folder), keyed=keyed)
        finally:
            yard.close()


def run_day(yard: Yard, spent: Spent, folder: Path, *, keyed: bool) -> None:
    yard.create(PATH, keyed=keyed, **EXPIRY)
    side, chance = yard.world.coordinator.board.find(TablePath.parse(PATH)), np.random.default_rng(18)
    put = yard.world.upsert if keyed else yard.world.append
    for first in range(0, KEYS, 100_000):
        put(PATH, rows(np.arange(first, first + 100_000), first))
    yard.tier(PATH)
    plans, commits, metadata, most = list[float](), list[float](), list[int](), 0
    for number in range(ROUNDS):
        ids = chance.choice(KEYS, ROWS, replace=False) if keyed else np.arange(ROWS) + KEYS + number * ROWS
        put(PATH, rows(ids, number))
        for end in yard.world.tier(PATH):
            assert isinstance(end, TableFinished), end
            assert end.result is not None
            plans.append(end.result.phases.plan_s)
            commits.append(end.result.phases.resolve_s + end.result.phases.commit_s)
        yard.clock.advance(10)
        spent.compact(yard, PATH)
        most = max(most, yard.files(PATH))
        if number % max(1, ROUNDS // LOOKS) == 0:
            yard.world.coordinator.upkeep.expire(side)
            metadata.append(sum(p.stat().st_size for p in folder.rglob("metadata/*") if p.is_file()))
    assert most < 40
    for figures in (plans, commits, metadata):
        quarter = len(figures) // 4
        early, late = figures[quarter // 2 : quarter + quarter // 2], figures[-quarter:]  # a start is in the first ones
        assert statistics.median(late) <= 1.5 * statistics.median(early)
    yard.create("b.fresh", keyed=keyed)
    for part in yard.world.read(PATH).to_table().to_batches(100_000):
        put("b.fresh", pa.Table.from_batches([part]))
    yard.tier("b.fresh")
    assert yard.scan(PATH) == yard.scan("b.fresh")
    assert best_s(lambda: yard.scan(PATH)) <= SCAN[keyed] * best_s(lambda: yard.scan("b.fresh"))
