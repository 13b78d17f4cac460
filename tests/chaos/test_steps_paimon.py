# SPDX-License-Identifier: Apache-2.0
"""Each step of a round x kill, pause, lost answer, on real Paimon tables: a sample here, all of them in the soak."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest

from lakeward.spi.registry import load_lake
from lakeward.testing.chaos.plan import ACTIONS, JOB_STEPS
from lakeward.testing.faults import Faults
from tests.chaos.stage import Stage
from tests.chaos.test_steps import hurt_a_round

SEED = 20
POINTS = [p for p in JOB_STEPS if p not in ("lake.before-resolve", "lake.before-deletes")]
"""It merges by key: no row is looked up, no delete written."""


def sampled() -> list[object]:
    """Every step once, with an action and a table drawn by the seed; the others are marked as soak."""
    chance = random.Random(SEED)
    chosen = {(point, chance.choice(ACTIONS), chance.random() < 0.5) for point in POINTS}
    cases = product(POINTS, ACTIONS, (False, True))
    marks = {True: [], False: [pytest.mark.soak]}
    return [
        pytest.param(*c, id=f"{c[1]} at {c[0]}, {'pk' if c[2] else 'log'}", marks=marks[c in chosen]) for c in cases
    ]


@pytest.mark.parametrize(("point", "action", "pk"), sampled())
def test_a_round_into_paimon_hurt_at(tmp_path: Path, faults: Faults, point: str, action: str, pk: bool) -> None:
    lake = load_lake("paimon", {"warehouse": str(tmp_path / "warehouse")})
    hurt_a_round(Stage(tmp_path, faults, pk=pk, lake=lake), faults, point, action)
