# SPDX-License-Identifier: Apache-2.0
"""The documented way out of `foreign-rows-found`, with resync rounds cut short or lost at moments that a seed draws:
afterwards every row is compared.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from lakeward_testing.faults import Faults
from tests.chaos.stage import TABLE, Stage

MOMENTS = (
    "round.planned",
    "round.before-write",
    "split.before-read",
    "split.written",
    "round.written",
    "round.before-resolve",
    "round.before-lease-check",
    "round.before-lake-commit",
    "round.after-lake-commit",
)
BUCKETS, ROUNDS = 4, 12
SHORT = (2, 6, 8)
"""Each ends wrong where a resync counts as done with its first commit."""

SEEDS = [pytest.param(seed, marks=[] if seed in SHORT else pytest.mark.soak) for seed in range(40)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_resync_ends_with_every_row_right(tmp_path: Path, faults: Faults, seed: int) -> None:
    chance = Random(seed)
    stage = Stage(tmp_path, faults, pk=True, buckets=BUCKETS)
    try:
        _write(stage, chance)
        stage.job("first").finish()
        _harm(stage, chance)
        _write(stage, chance)
        stage.ask_resync()
        for number in range(ROUNDS):
            if not stage.is_resyncing():
                break
            _play_one(stage, chance, number)
        for number in range(BUCKETS + 1):
            if stage.is_resyncing():
                stage.clock.advance(3_600)  # type: ignore[attr-defined]
                stage.job(f"last-{number}").finish()
        assert not stage.is_resyncing(), f"seed {seed}"
        stage.actors = [a for a in stage.actors if not a.is_over]
        assert stage.violations() == [], f"seed {seed}"
    finally:
        stage.close()


def _play_one(stage: Stage, chance: Random, number: int) -> None:
    """A round that is cut short at a moment; after it the server may restart, or lose its database."""
    stage.clock.advance(3_600)  # type: ignore[attr-defined]
    job = stage.job(f"r{number}")
    point = chance.choice(MOMENTS)
    job.go(point, of_anyone=True)
    what = chance.random()
    if what < 0.6:
        job.control.force()
    elif what < 0.8:
        stage.lease_expires()
    if chance.random() < 0.3:
        _write(stage, chance)
    job.finish()
    what = chance.random()
    if what < 0.2:
        stage.world.restart()
        stage.world.coordinator.lakes.read_unseen()
    elif what < 0.3 and stage.lake.open_reader(stage._info).load_base().is_resyncing:
        stage.lose_database()


def _write(stage: Stage, chance: Random) -> None:
    keys = chance.sample(range(60), 25)
    stage.world.upsert(TABLE, [{"id": key, "v": f"v{chance.randrange(1000)}"} for key in keys])
    stage.world.delete(TABLE, [{"id": key} for key in keys[:5]])


def _harm(stage: Stage, chance: Random) -> None:
    """Another engine deletes rows, and inserts some under keys that are there and others that are not."""
    schema = stage.foreign.load().schema().as_arrow()
    theirs = [
        {"id": key, "v": "theirs", "__bucket": chance.randrange(BUCKETS), "__offset": 10**12 + key, "__timestamp": 0}
        for key in chance.sample(range(100), 10)
    ]
    for what in chance.sample(("delete", "append"), 2):
        if what == "delete":
            stage.foreign.delete(f"id < {chance.randrange(10, 60)}")
        else:
            stage.foreign.append(pa.Table.from_pylist(theirs, schema))
