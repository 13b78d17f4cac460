# SPDX-License-Identifier: Apache-2.0
"""The protocol with every protection: no invariant breaks in any world. `make test` sees the first 2,500 states of each
(all ways of up to six steps and more), `make soak` every state.
"""

from __future__ import annotations

import pytest

from tests.model.rules import Rules
from tests.model.search import search
from tests.model.world import World
from tests.model.worlds import WORLDS

FEW, ALL = 2_500, 10_000_000


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_no_invariant_breaks(world: World) -> None:
    outcome = search(world, Rules(), FEW)
    assert outcome.violation is None, "\n".join(outcome.trace)


@pytest.mark.soak
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_no_invariant_breaks_in_any_state(world: World) -> None:
    outcome = search(world, Rules(), ALL)
    assert (outcome.violation, outcome.whole) == (None, True), "\n".join(outcome.trace)
