# SPDX-License-Identifier: Apache-2.0
"""From the model to the code: traces with a resync. Another engine deletes rows of every bucket; whatever happens to
the resync's rounds, each bucket is compared before it counts as done.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward_testing.faults import Faults
from tests.chaos.plays import Trace, play
from tests.chaos.stage import TABLE, Actor, Stage

BUCKETS = 3


def _harmed(stage: Stage) -> Stage:
    """Every bucket has lost rows in the lake, and an operator asks for a resync."""
    stage.world.upsert(TABLE, [{"id": n, "v": f"v{n}"} for n in range(30)])
    stage.job("before").finish()
    stage.foreign.delete("id >= 5")
    return stage.ask_resync()


def _cut_short(stage: Stage, name: str) -> Actor:
    """A round that reaches its limit at once: the first split runs to its end, no other one begins."""
    job = stage.job(name)
    job.control.force()
    return job


def _resync_to_the_end(stage: Stage) -> None:
    for number in range(2 * BUCKETS):
        if stage.is_resyncing():
            stage.job(f"after-{number}").finish()
    if stage.is_resyncing():
        stage.told.append("the resync does not end")


def a_resync_that_reaches_its_limit(stage: Stage) -> None:
    """Mutation: without "resync: done when every bucket was compared"."""
    _cut_short(_harmed(stage), "short").finish()
    _resync_to_the_end(stage)


def a_resync_in_which_a_split_fails(stage: Stage) -> None:
    """The same mutation: what failed is not compared either."""
    _harmed(stage)
    one = stage.faults.arm("split.before-read", times=None, when=lambda facts: facts["split"].startswith("snapshot 1 "))
    stage.job("failing").finish()
    stage.faults.disarm(one)
    stage.clock.advance(3600)  # type: ignore[attr-defined]
    _resync_to_the_end(stage)


def a_resync_whose_report_never_came(stage: Stage) -> None:
    """Mutation: without "resync: the lake says that it is not done"; the report is lost."""
    short = _cut_short(_harmed(stage), "short").commit()
    stage.lease_expires()
    stage.job("next").finish()
    short.finish()
    _resync_to_the_end(stage)


def a_resync_and_a_lost_database(stage: Stage) -> None:
    """The same mutation, and "a compaction copies that"."""
    _cut_short(_harmed(stage), "short").finish()
    stage.lose_database()
    stage.actors.clear()
    _resync_to_the_end(stage)


def a_resync_and_a_restart(stage: Stage) -> None:
    _cut_short(_harmed(stage), "short").finish()
    stage.world.restart()
    stage.actors.clear()
    _resync_to_the_end(stage)


def a_second_resync_while_the_first_is_out(stage: Stage) -> None:
    """Mutation: without "resync: a second one is not served by a round of the first"."""
    first = _harmed(stage).job("first").plan().write()
    stage.foreign.delete("id < 5")
    first.resolve().check_lease()
    stage.ask_resync()
    first.finish()
    _resync_to_the_end(stage)


TRACES: list[tuple[Trace, tuple[str, ...]]] = [
    (a_resync_that_reaches_its_limit, ("resync_remains",)),
    (a_resync_in_which_a_split_fails, ("resync_remains",)),
    (a_resync_whose_report_never_came, ("resync_marked",)),
    (a_resync_and_a_lost_database, ("resync_marked",)),
    (a_resync_and_a_restart, ("resync_remains",)),
    (a_second_resync_while_the_first_is_out, ("resync_anew",)),
]


@pytest.mark.parametrize(("trace", "weak"), TRACES, ids=[t.__name__ for t, _ in TRACES])
def test_a_trace_ends_right_and_goes_wrong_without_its_protection(
    tmp_path: Path, faults: Faults, trace: Trace, weak: tuple[str, ...]
) -> None:
    assert play(tmp_path / "right", faults, trace, (), pk=True, buckets=BUCKETS) == []
    wrong = play(tmp_path / "weak", faults, trace, weak, pk=True, buckets=BUCKETS)
    assert wrong, f"without {', '.join(weak)} nothing went wrong"
