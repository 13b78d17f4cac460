# SPDX-License-Identifier: Apache-2.0
"""Random mixes of tables: the planner meets every deadline where the slots are busy half of the time."""

from __future__ import annotations

import random

from bench.freshness import draw_mix, is_possible, run
from lakeward.coordinator.schedule.simulator import lakeward


def test_mixes_at_half_utilisation_miss_nothing() -> None:
    rng, tried = random.Random(7), 0
    for number in range(8):
        tables, slots = draw_mix(rng)
        work = sum(t.round_ms / (t.freshness_ms - t.round_ms) for t in tables)
        if work <= 0.5 * slots and is_possible(tables, slots):
            tried += 1
            until = 3 * max(t.freshness_ms for t in tables)
            assert run(tables, slots, lakeward, until, seed=number).missed == []
    assert tried >= 4
