# SPDX-License-Identifier: Apache-2.0
"""The model's traces with our compaction, a Flink tiering job and other engines' orphan removal, on real Iceberg
tables. What the model calls environment nobody can prevent: there verify must name it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.protocol.heartbeat import TableFailed
from lakeward_testing.clock import ManualClock
from lakeward_testing.faults import Faults
from tests.chaos.plays import Trace, play
from tests.chaos.stage import Stage

FOUR_DAYS_S = 4 * 24 * 3600.0
"""Other engines' orphan removal leaves younger files alone, for three days by default."""


def a_delete_that_comes_while_we_compact(stage: Stage) -> None:
    """Mutation: without carrying deletes over. A PK table: the second round replaces a row that compaction has read."""
    stage.grow(2)
    stage.job("one").finish()
    stage.grow(1)
    r2 = stage.job("two").plan().write().resolve().check_lease()
    compaction = stage.compaction().write()
    r2.commit()
    compaction.commit()
    assert compaction.landed
    r2.finish()


def a_fence_while_we_compact(stage: Stage) -> None:
    """Reading: our compaction is not fenced. Orphan removal takes the files of a compaction that sleeps."""
    stage.grow(2)
    stage.job("one").finish()
    compaction = stage.compaction().check_lease()
    stage.lease_expires()
    stage.orphans().begin().finish()
    compaction.commit()
    assert compaction.landed == stage.weak.any


def a_compaction_that_sleeps_past_its_lease(stage: Stage) -> None:
    """Mutation: without the check of the lease right before the commit, once orphan removal took its files."""
    stage.grow(2)
    stage.job("one").finish()
    compaction = stage.compaction().write()
    stage.lease_expires()
    stage.orphans().begin().finish()
    compaction.commit()
    assert compaction.landed == stage.weak.any


def two_compactions(stage: Stage) -> None:
    """The second has the lease of the first, which sleeps: what the first rewrote is live no longer."""
    stage.grow(2)
    stage.job("one").finish()
    asleep = stage.compaction().check_lease()
    stage.lease_expires()
    second = stage.compaction()
    second.write().commit()
    assert second.landed
    asleep.commit()
    assert not asleep.landed


def a_fence_over_a_round_that_nobody_reported(stage: Stage) -> None:
    """Reading: fence does not tell the coordinator. It fences for a compaction's files, and others expire what it stood
    on.
    """
    stage.grow(2)
    r1 = stage.job("one").plan().write(0).resolve().check_lease()
    r1.commit_and_say(r1.conflict)
    stage.compaction().write()
    stage.lease_expires()
    stage.orphans().begin().finish()
    stage.foreign.expire()
    r1.finish()


def a_flink_commit_before_ours(stage: Stage) -> None:
    """Mutation: without offset equality, beside a Flink job, token = round id."""
    stage.grow(2)
    r1 = stage.job("one").plan().write(0)
    stage.flink().commit()
    r1.resolve()
    r1.commit()


def a_flink_commit_alone(stage: Stage) -> None:
    """Reading: only snapshots with our table id count. The next round goes on where the Flink job stopped."""
    stage.grow(2)
    stage.flink().commit()
    stage.grow(1)
    stage.job("one").finish()


def foreign_orphan_removal_while_a_round_sleeps(stage: Stage) -> None:
    """Environment: foreign remove_orphan_files during a pause. A round that slept so long never commits."""
    stage.grow(2)
    r1 = stage.job("one").plan().write(0).resolve().check_lease()
    assert isinstance(stage.clock, ManualClock)
    stage.clock.advance(FOUR_DAYS_S)
    stage.foreign_orphan_removal()
    r1.finish()


TRACES: list[tuple[Trace, tuple[str, ...], bool]] = [
    (a_delete_that_comes_while_we_compact, ("carry_over",), True),
    (a_fence_while_we_compact, ("compaction_fenced", "lease_check"), True),
    (a_compaction_that_sleeps_past_its_lease, ("compaction_fenced", "lease_check"), True),
    (a_fence_over_a_round_that_nobody_reported, ("fence_adopts",), False),
    (a_flink_commit_before_ours, ("offset_check", "any_token"), False),
    (a_flink_commit_alone, ("any_offsets",), False),
    (foreign_orphan_removal_while_a_round_sleeps, ("max_age",), False),
]


@pytest.mark.parametrize(("trace", "weak", "pk"), TRACES, ids=[t.__name__ for t, _, _ in TRACES])
def test_a_trace_ends_right_and_goes_wrong_without_its_protection(
    tmp_path: Path, faults: Faults, trace: Trace, weak: tuple[str, ...], pk: bool
) -> None:
    assert play(tmp_path / "right", faults, trace, (), pk) == []
    assert play(tmp_path / "weak", faults, trace, weak, pk), f"without {', '.join(weak)} nothing went wrong"


@pytest.mark.parametrize("pk", [False, True])
def test_of_two_compactions_one_lands_and_no_row_changes(tmp_path: Path, faults: Faults, pk: bool) -> None:
    assert play(tmp_path / "right", faults, two_compactions, (), pk) == []
    unsafe = play(tmp_path / "unleased", faults, two_compactions, ("lease_check",), pk)
    assert unsafe == [], "its inputs are gone, whatever its lease"


def test_verify_names_what_a_flink_job_that_slept_wrote_twice(tmp_path: Path, faults: Faults) -> None:
    """Environment: a paused Flink job. Its commit has no condition, so nobody can refuse it;
    it must not stay unseen.
    """

    def trace(stage: Stage) -> None:
        stage.grow(2)
        r1 = stage.job("one").plan().write(0).resolve().check_lease()
        flink = stage.flink()
        r1.commit()
        flink.commit()

    found = play(tmp_path / "lake", faults, trace, (), recover=False)
    assert any(f.startswith("duplicate: 1 ") for f in found), found


@pytest.mark.parametrize("weak", [(), ("never_behind",)], ids=["right", "weak"])
def test_a_flink_snapshot_that_others_expired_is_never_taken_for_a_new_table(
    tmp_path: Path, faults: Faults, weak: tuple[str, ...]
) -> None:
    """Environment: the Flink job does not tag, others expire. Its offsets are gone from the lake; the coordinator, told
    of its commit, knows better: the round stops with an error, and nothing is written twice."""
    stage = Stage(tmp_path, faults, weak)
    try:
        stage.grow(2)
        flink = stage.flink()
        flink.commit()
        flink.report()
        stage.foreign.rewrite()
        stage.foreign.expire()
        stage.grow(1)
        end = stage.job("one").finish()
        rows = stage.foreign.load().scan().to_arrow().column("id").to_pylist()
        if weak:
            assert sorted(rows) == [0, 0, 1, 1, 2], "without the check rows would be there twice"
        else:
            assert isinstance(end, TableFailed)
            assert end.error["code"] == "lake-behind"
            assert sorted(rows) == [0, 1]
    finally:
        stage.close()
