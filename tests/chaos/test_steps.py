# SPDX-License-Identifier: Apache-2.0
"""Each step of a round x kill, pause, lost answer, on real Iceberg tables: a seeded sample here, all of them in the
soak.

A killed job never goes on; a paused one goes on after another took its table; a lost answer is an error at the step."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest

from lakeward_testing.chaos.plan import ACTIONS, JOB_STEPS
from lakeward_testing.faults import FaultAction, Faults
from tests.chaos.stage import Actor, Stage

SEED = 11
CASES = [
    (point, action, pk)
    for point, action, pk in product(JOB_STEPS, ACTIONS, (False, True))
    if pk or point != "lake.before-deletes"
]


def sampled() -> list[object]:
    """Every step once, with an action and a table drawn by the seed; the others are marked as soak."""
    chance = random.Random(SEED)
    chosen = {point: chance.choice([c for c in CASES if c[0] == point]) for point in JOB_STEPS}
    marks = {True: [], False: [pytest.mark.soak]}
    return [
        pytest.param(*c, id=f"{c[1]} at {c[0]}, {'pk' if c[2] else 'log'}", marks=marks[c == chosen[c[0]]])
        for c in CASES
    ]


def reach(actor: Actor, point: str) -> None:
    """Stands there; what only happens after an unanswered commit gets one."""
    if point == "round.before-find":
        actor.commit_and_say()
    else:
        actor.go(point, of_anyone="round" not in point)


@pytest.mark.parametrize(("point", "action", "pk"), sampled())
def test_a_round_hurt_at(tmp_path: Path, faults: Faults, point: str, action: str, pk: bool) -> None:
    hurt_a_round(Stage(tmp_path, faults, pk=pk), faults, point, action)


def hurt_a_round(stage: Stage, faults: Faults, point: str, action: str) -> None:
    try:
        stage.grow(3)
        stage.job("first").finish()
        stage.grow(3)
        hurt = stage.job("hurt")
        if action == "lose":
            if point == "round.before-find":
                faults.arm("lake.after-commit", FaultAction.RAISE)
            lost = faults.arm(point, FaultAction.RAISE)
            hurt.finish()
            assert lost.acted == 1
        else:
            reach(hurt, point)
            stage.lease_expires()
            stage.grow(1)
            if stage.waits():
                stage.job("heir").finish()
            if action == "kill":
                stage.actors.remove(hurt)
        assert stage.violations() == []
    finally:
        stage.close()
