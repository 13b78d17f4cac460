# SPDX-License-Identifier: Apache-2.0
"""The model's traces of zombies, fences and orphan removal on tables of the other formats: with every protection, and
with a coordinator that takes each zombie's lease for held, so that the format's own check must stop it.

What the model takes away beside that is Iceberg's own (`weak.py`), and so are the traces with other engines."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from lakeward.spi import load_lake
from lakeward_testing.faults import Faults
from tests.chaos import test_model_traces as rounds
from tests.chaos import test_model_traces_others as others
from tests.chaos.plays import Trace, play

FORMATS = ("paimon", "delta", "lance", "hudi")
ROUNDS: list[Trace] = [
    rounds.a_fence_between,
    rounds.two_rounds_of_the_same_rows,
    rounds.a_commit_after_the_fence,
    rounds.a_hole_in_the_middle,
    rounds.a_retry_that_meets_its_own_commit,
    rounds.a_retry_that_meets_its_own_commit_without_a_lease,
    rounds.a_fence_beside_a_leased_round,
    rounds.a_split_that_stops_short,
    rounds.a_commit_while_orphans_go,
    rounds.a_commit_between_listing_and_fence,
    rounds.a_commit_while_a_sweep_goes,
    rounds.a_late_coordinator_commit,
    rounds.a_writer_behind_the_removal,
    rounds.a_fence_while_another_round_runs,
    rounds.a_loser_that_plans_again,
]
COMPACTIONS: list[Trace] = [
    others.a_delete_that_comes_while_we_compact,
    others.a_fence_while_we_compact,
    others.a_compaction_that_sleeps_past_its_lease,
    others.two_compactions,
]
BELIEVED = ("lease_check",)
SHORT = {("two_rounds_of_the_same_rows", True, True), ("a_delete_that_comes_while_we_compact", False, True)}


def cases() -> list[object]:
    """A zombie and a compaction of each format here, the others in the soak."""
    found = list[object]()
    traces = [*product(ROUNDS, (False, True)), *((trace, False) for trace in COMPACTIONS)]
    for format, (trace, is_believed), pk in product(FORMATS, traces, (False, True)):
        marks = [] if (trace.__name__, is_believed, pk) in SHORT else [pytest.mark.soak]
        name = f"{format}: {trace.__name__}, {'pk' if pk else 'log'}{', believed' if is_believed else ''}"
        found.append(pytest.param(format, trace, is_believed, pk, id=name, marks=marks))
    return found


@pytest.mark.parametrize(("format", "trace", "is_believed", "pk"), cases())
def test_a_trace_ends_right(
    tmp_path: Path, faults: Faults, format: str, trace: Trace, is_believed: bool, pk: bool
) -> None:
    lake = load_lake(format, {"warehouse": str(tmp_path / "warehouse")})
    assert play(tmp_path / "stage", faults, trace, BELIEVED if is_believed else (), pk, lake=lake) == []
