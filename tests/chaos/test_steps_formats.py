# SPDX-License-Identifier: Apache-2.0
"""Each step of a round x kill, pause, lost answer, on real tables of the other formats: a sample here, all of them in
the soak."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest

from lakeward.spi import load_lake
from lakeward_testing.chaos.plan import ACTIONS, JOB_STEPS
from lakeward_testing.faults import Faults
from tests.chaos.stage import Stage
from tests.chaos.test_steps import hurt_a_round

SEED = 20
NOT_THERE = {
    "paimon": ("lake.before-resolve", "lake.before-deletes"),
    "delta": ("lake.before-manifests",),
    "lance": ("lake.before-manifests",),
    "hudi": ("lake.before-manifests", "lake.before-deletes"),
}
"""Paimon and Hudi merge by key: no row is looked up, no delete written. Delta and Hudi have no manifests, and of Lance
the library writes them."""


def sampled() -> list[object]:
    """Every step once, with an action and a table drawn by the seed; the others are marked as soak."""
    cases: list[object] = []
    for format, absent in NOT_THERE.items():
        chance = random.Random(SEED)
        points = [p for p in JOB_STEPS if p not in absent]
        chosen = {(p, chance.choice(ACTIONS), chance.random() < 0.5 or p == "lake.before-deletes") for p in points}
        for point, action, pk in product(points, ACTIONS, (False, True)):
            if pk or point != "lake.before-deletes":
                marks = [] if (point, action, pk) in chosen else [pytest.mark.soak]
                name = f"{format}: {action} at {point}, {'pk' if pk else 'log'}"
                cases.append(pytest.param(format, point, action, pk, id=name, marks=marks))
    return cases


@pytest.mark.parametrize(("format", "point", "action", "pk"), sampled())
def test_a_round_hurt_at(tmp_path: Path, faults: Faults, format: str, point: str, action: str, pk: bool) -> None:
    lake = load_lake(format, {"warehouse": str(tmp_path / "warehouse")})
    hurt_a_round(Stage(tmp_path, faults, pk=pk, lake=lake), faults, point, action)
