# SPDX-License-Identifier: Apache-2.0
"""Each protection is needed: without it the search finds steps that break an invariant."""

from __future__ import annotations

import pytest

from tests.model.mutations import COVERED, DEEP, ENVIRONMENT, MUTATIONS, READINGS
from tests.model.rules import Rules
from tests.model.search import search

CASES = {**MUTATIONS, **READINGS, **{name: (world, "") for name, world in ENVIRONMENT.items()}}
FEW, ALL = 15_000, 10_000_000


@pytest.mark.parametrize("name", [name for name in CASES if name not in DEEP])
def test_a_protection_that_is_taken_away_is_missed(name: str) -> None:
    world, off = CASES[name]
    assert search(world, Rules().without(off), FEW).violation


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(DEEP))
def test_a_protection_that_is_taken_away_is_missed_in_the_end(name: str) -> None:
    world, off = CASES[name]
    assert search(world, Rules().without(off), ALL).violation


@pytest.mark.soak
@pytest.mark.parametrize("name", COVERED)
def test_some_protections_stand_behind_each_other(name: str) -> None:
    world, off = COVERED[name]
    outcome = search(world, Rules().without(off), ALL)
    assert (outcome.violation, outcome.whole) == (None, True)


def test_every_rule_has_its_mutation() -> None:
    taken_away = {rule for _, off in [*MUTATIONS.values(), *READINGS.values()] for rule in off.split()}
    assert taken_away == set(Rules._fields)
