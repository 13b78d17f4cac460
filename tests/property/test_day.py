# SPDX-License-Identifier: Apache-2.0
"""A day of rounds in minutes with maintenance on: nothing that readers or rounds pay for grows, and no row is late.

Held by what is read and written, which is the same on a busy machine; `python -m bench.day` has the seconds.
`LAKEWARD_SOAK_ROUNDS=500` makes it shorter; `-s` prints the figures."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from bench.day import FRESH, PATH, Work, grown, run_day, write_fresh
from bench.maintenance import opened

ROUNDS = int(os.environ.get("LAKEWARD_SOAK_ROUNDS", "10000"))
SCAN = 1.5
"""Bytes that a scan reads beside one of a freshly written table."""

FLAT = 1.5
"""Late rounds beside early ones."""


@pytest.mark.soak
@pytest.mark.parametrize("keyed", [False, True], ids=["log", "pk"])
def test_a_day_of_rounds_costs_nothing(keyed: bool) -> None:
    with opened() as yard:
        day = run_day(yard, Path(yard.world.folder).parent, keyed=keyed, rounds=ROUNDS)
        write_fresh(yard, keyed=keyed)
        kept, fresh = (Work.of(partial(yard.scan, path)) for path in (PATH, FRESH))
        print(f"{'PK' if keyed else 'log'}, {ROUNDS:,} rounds: {day}; a scan: {kept}, of fresh: {fresh}")
        assert day.compactions > 0
        assert day.most_files < 40
        assert day.late == 0
        assert grown(day.plans.work_s) <= FLAT
        assert grown(day.commits.work_s) <= FLAT
        assert grown(day.metadata) <= FLAT
        assert kept.bytes <= SCAN * fresh.bytes
