# SPDX-License-Identifier: Apache-2.0
"""From the model to the code: the traces of the protocol's model, step by step, on real Iceberg tables.

Each must end right. Then the protection that the model took away is switched off here too, and the same trace must go
wrong: so we know that the test can see it. Traces with our compaction and with other writers are in
test_model_traces_others.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from lakeward.coordinator.state.readleases import ReadLeases
from lakeward.model import ExpiringSnapshot, SideId, SnapshotId, TablePath
from lakeward_testing.faults import Faults
from tests.chaos.plays import Trace, play
from tests.chaos.stage import TABLE, Stage


def a_fence_between(stage: Stage) -> None:
    """Mutation: without token check and lease check."""
    stage.grow(2)
    r1 = stage.job("one").plan().write(0)
    stage.lease_expires()
    gc = stage.orphans().begin()
    gc.go("orphans.fenced")
    r1.resolve().check_lease()
    gc.fence()
    r1.commit()
    gc.finish()


def two_rounds_of_the_same_rows(stage: Stage) -> None:
    """Mutation: without token check and offset equality."""
    stage.grow(2)
    r1 = stage.job("one").plan().write(0).resolve().check_lease()
    stage.lease_expires()
    r2 = stage.job("two").plan()
    r1.commit()
    r2.write(0).resolve().check_lease().commit()


def a_commit_after_the_fence(stage: Stage) -> None:
    """Mutation: without exact head."""
    stage.grow(2)
    r1 = stage.job("one").plan().write(0).resolve().check_lease()
    stage.lease_expires()
    gc = stage.orphans().begin().fence()
    r1.commit()
    gc.finish()


def a_hole_in_the_middle(stage: Stage) -> None:
    """Mutation: without contiguous prefix."""
    stage.grow(3)
    stage.job("one").plan().write(0, 2).resolve().check_lease().commit().finish()


def a_retry_that_meets_its_own_commit(stage: Stage) -> None:
    """Mutation: without find round id first."""
    stage.grow(2)
    r1 = stage.job("one").plan().write(0).resolve().check_lease()
    r1.commit_and_say(r1.conflict)
    r1.finish()


def a_retry_that_meets_its_own_commit_without_a_lease(stage: Stage) -> None:
    """Mutation: without find round id first, and token and offset checks."""
    stage.grow(2)
    r1 = stage.job("one").plan().write(0).resolve().check_lease()
    r1.commit_and_say(r1.conflict)
    r1.resolve()
    stage.lease_expires()
    r1.finish()


def a_fence_beside_a_leased_round(stage: Stage) -> None:
    """Mutation: without token check, fencing while leased."""
    stage.grow(2)
    stage.job("one").plan().write(1).finish()
    r2 = stage.job("two").plan().write(0)
    gc = stage.orphans().begin()
    gc.go("orphans.fenced")
    r2.resolve().check_lease()
    stage.lease_expires()
    gc.finish()
    again = stage.orphans().begin().fence()
    r2.commit()
    again.finish()


def a_split_that_stops_short(stage: Stage) -> None:
    """Reading: stop short decided in pass two. A PK table: the batch behind the stop replaces a row before it."""
    stage.grow(2)
    stage.job("one").finish()
    stage.grow(3)
    stage.job("two", split_bytes=1 << 20).plan().write_short().resolve().check_lease().commit().finish()


def a_commit_while_orphans_go(stage: Stage) -> None:
    """Mutations: without fencing snapshot; without fence before listing (there the commit comes before the fence)."""
    stage.grow(2)
    r1 = stage.job("one").plan().write(0).resolve().check_lease()
    stage.lease_expires()
    gc = stage.orphans().begin().fence()
    r1.commit()
    gc.finish()


def a_commit_between_listing_and_fence(stage: Stage) -> None:
    """Mutation: without fence before listing."""
    stage.grow(2)
    r1 = stage.job("one").plan().write(0).resolve().check_lease()
    stage.lease_expires()
    gc = stage.orphans().go("orphans.before-fence")
    r1.commit()
    gc.finish()


def a_commit_while_a_sweep_goes(stage: Stage) -> None:
    """Mutation: without fencing snapshot, sweep."""
    stage.grow(2)
    r1 = stage.job("one").plan().write(0).resolve().check_lease()
    stage.lease_expires()
    gc = stage.orphans(sweep=True).begin().fence()
    r1.commit()
    gc.finish()


def a_foreign_compaction_before_the_commit(stage: Stage) -> None:
    """Mutation: without resolve again. A PK table: the second round replaces a row of the first."""
    stage.grow(2)
    stage.job("one").finish()
    stage.grow(1)
    r2 = stage.job("two").plan().write().resolve().check_lease()
    stage.foreign.rewrite()
    r2.go("round.before-find").commit().finish()


def a_foreign_compaction_and_expiry(stage: Stage) -> None:
    """Mutation: without tag."""
    stage.grow(2)
    stage.job("one").plan().write(0).resolve().check_lease().commit().finish()
    stage.foreign.rewrite()
    stage.foreign.expire()


def two_foreign_compactions_and_expiry(stage: Stage) -> None:
    """Reading: tag unreachable because others expired the snapshots between."""
    stage.grow(2)
    stage.job("one").plan().write(0).resolve().check_lease().commit().finish()
    stage.foreign.rewrite()
    stage.foreign.rewrite(seed=2)
    stage.foreign.expire()


def a_late_coordinator_commit(stage: Stage) -> None:
    """Reading: late coordinator commit overwrites."""
    stage.grow(2)
    r1 = stage.job("one").plan().write(0).resolve().check_lease().go("round.before-coordinator-commit")
    stage.lease_expires()
    r2 = stage.job("two").plan().write().resolve().check_lease().go("round.after-coordinator-commit")
    before = stage.committed()
    r1.go("round.after-coordinator-commit")
    if stage.committed() < before:
        stage.told.append(f"the committed offset went back from {before} to {stage.committed()}")
    r2.finish()


def a_rollback_under_a_paused_round(stage: Stage) -> None:
    """Reading: commit asserts main only, rollback returns main to the old head."""
    stage.grow(2)
    r1 = stage.job("one").plan().write(1)
    r1.finish()
    stage.orphans().begin().finish()
    r2 = stage.job("two").plan().write(0).resolve().check_lease()
    stage.lease_expires()
    stage.orphans().begin().finish()
    stage.roll_back(0)
    r2.commit()


def an_own_snapshot_that_expired(stage: Stage) -> None:
    """Reading: find looks at retained snapshots only."""
    stage.grow(3)
    r1 = stage.job("one").plan().write(0).resolve().check_lease()
    r1.commit_and_say(r1.conflict)
    stage.lease_expires()
    r2 = stage.job("two").plan().write(2)
    r2.finish()
    stage.lease_expires()
    stage.orphans().begin().finish()
    stage.foreign.expire()
    r1.finish()


def a_writer_behind_the_removal(stage: Stage) -> None:
    """Reading: orphan removal closes the intent. What a zombie writes after it must still be found."""
    stage.grow(2)
    r1 = stage.job("one").plan()
    stage.lease_expires()
    gc = stage.orphans().begin()
    r1.write(1)
    gc.finish()
    r1.finish()
    stage.orphans().finish()
    upkeep = stage.lake.open_maintenance(stage.world.store.load_tables()[0])
    left = {f.path for f in upkeep.list_files()} - upkeep.references()
    if left and not stage.world.coordinator.intents.open_intents(stage.world.store.load_tables()[0].table_id):
        stage.told.append(f"{sorted(left)[0]} can never be removed: no snapshot and no intent names it")


def a_fence_while_another_round_runs(stage: Stage) -> None:
    """Reading: fence while another round runs."""
    stage.grow(2)
    r1 = stage.job("one").plan().write(1)
    r1.finish()
    r2 = stage.job("two").plan().write(0)
    stage.orphans().begin().finish()
    r2.resolve()
    r2.finish()
    if r2.was_told_lost:
        stage.told.append("a round that holds the lease lost to our own fence")


def a_fence_on_a_rolled_back_table(stage: Stage) -> None:
    """Reading: fence ignores a rollback. By sweep, which fences for the first round's leftovers."""
    stage.grow(2)
    stage.job("one").plan().write(1).finish()
    stage.orphans().begin().finish()
    r2 = stage.job("two").plan().write(0, 1).resolve().check_lease()
    stage.lease_expires()
    stage.job("three").plan().write(1).finish()
    stage.lease_expires()
    gc = stage.orphans(sweep=True).begin()
    r2.commit()
    stage.roll_back(0)
    before = len(stage.foreign.load().metadata.snapshots)
    gc.finish()
    if len(stage.foreign.load().metadata.snapshots) > before:
        stage.told.append("commit on a rolled back table")


def a_request_that_arrives_late(stage: Stage) -> None:
    """Reading: unknown and not found counts as lost."""
    stage.grow(2)
    r1 = stage.job("one").plan()
    r1.write(0).resolve().check_lease().commit_delayed()
    r1.finish()
    r1.deliver()


def a_loser_that_plans_again(stage: Stage) -> None:
    """Reading: a loser plans again under its old round id."""
    stage.grow(2)
    r1 = stage.job("one").plan().write(0).resolve().check_lease()
    stage.lease_expires()
    r2 = stage.job("two").plan()
    r1.commit()
    r2.write(0).finish()
    again = stage.job("two", r2.round_id if stage.weak.off("new_round_id") else None)
    again.plan().write(1).resolve().check_lease()
    stage.lease_expires()
    gc = stage.orphans().begin().fence()
    again.commit()
    gc.finish()


TRACES: list[tuple[Trace, tuple[str, ...], bool]] = [
    (a_fence_between, ("token_check", "lease_check"), False),
    (two_rounds_of_the_same_rows, ("token_check", "offset_check", "lease_check"), False),
    (a_commit_after_the_fence, ("exact_head", "assert_tag"), False),
    (a_hole_in_the_middle, ("prefix",), False),
    (a_retry_that_meets_its_own_commit, ("find_first",), False),
    (a_retry_that_meets_its_own_commit_without_a_lease, ("find_first", "token_check", "offset_check"), False),
    (a_fence_beside_a_leased_round, ("token_check", "fence_idle"), False),
    (a_split_that_stops_short, ("trim_short",), True),
    (a_commit_while_orphans_go, ("fence",), False),
    (a_commit_between_listing_and_fence, ("fence_then_list",), False),
    (a_commit_while_a_sweep_goes, ("fence",), False),
    (a_foreign_compaction_before_the_commit, ("re_resolve",), True),
    (a_foreign_compaction_and_expiry, ("tag",), False),
    (two_foreign_compactions_and_expiry, ("broken_chain",), False),
    (a_late_coordinator_commit, ("coord_monotone",), False),
    (an_own_snapshot_that_expired, ("find_ledger",), False),
    (a_writer_behind_the_removal, ("keep_intent",), False),
    (a_fence_while_another_round_runs, ("fence_idle",), False),
    (a_request_that_arrives_late, ("resend_unknown",), False),
    (a_loser_that_plans_again, ("new_round_id",), False),
]
ROLLED_BACK: list[tuple[Trace, tuple[str, ...]]] = [
    (a_rollback_under_a_paused_round, ("assert_tag",)),
    (a_fence_on_a_rolled_back_table, ("fence_stops",)),
]
"""Here the table is rolled back in the end: what counts is that nothing of ours is committed on it."""


@pytest.mark.parametrize(("trace", "weak", "pk"), TRACES, ids=[t.__name__ for t, _, _ in TRACES])
def test_a_trace_ends_right_and_goes_wrong_without_its_protection(
    tmp_path: Path, faults: Faults, trace: Trace, weak: tuple[str, ...], pk: bool
) -> None:
    assert play(tmp_path / "right", faults, trace, (), pk) == []
    assert play(tmp_path / "weak", faults, trace, weak, pk), f"without {', '.join(weak)} nothing went wrong"


@pytest.mark.parametrize(("trace", "weak"), ROLLED_BACK, ids=[t.__name__ for t, _ in ROLLED_BACK])
def test_nothing_is_committed_on_a_table_that_was_rolled_back(
    tmp_path: Path, faults: Faults, trace: Trace, weak: tuple[str, ...]
) -> None:
    def wrong(found: list[str]) -> list[str]:
        return [f for f in found if "gone" in f or "commit on" in f]

    assert wrong(play(tmp_path / "right", faults, trace, (), False, recover=False)) == []
    assert wrong(play(tmp_path / "weak", faults, trace, weak, False, recover=False)), (
        f"without {', '.join(weak)} nothing went wrong"
    )


def test_a_lost_database_leaves_orphans_to_a_sweep(tmp_path: Path, faults: Faults) -> None:
    """Reading: intents are lost with the database. Removal by intents then finds nothing; a sweep does."""
    stage = Stage(tmp_path, faults)
    try:
        stage.grow(2)
        stage.job("one").plan().write(1).finish()
        stage.lose_database()

        def left() -> set[str]:
            upkeep = stage.lake.open_maintenance(stage.world.store.load_tables()[0])
            found: set[str] = {f.path for f in upkeep.list_files()} - upkeep.references()
            return found

        stage.orphans().finish()
        assert left()
        stage.orphans(sweep=True).finish()
        assert not left()
        stage.actors.clear()
        assert stage.violations() == []
    finally:
        stage.close()


class WeakLeases(ReadLeases):
    """Expiry that marks nothing where leases are kept."""

    def mark(self, side: SideId, snapshots: Iterable[ExpiringSnapshot], token: str | None = None) -> list[SnapshotId]:
        return [s.snapshot_id for s in snapshots]


@pytest.mark.parametrize("weak", [False, True], ids=["right", "weak"])
def test_expiry_and_read_leases_exclude_each_other(tmp_path: Path, faults: Faults, weak: bool) -> None:
    """Reading: expiry and leases do not exclude each other. Expiry has decided; a reader leases the old snapshot;
    expiry goes on.
    """
    stage = Stage(tmp_path, faults)
    coordinator = stage.world.coordinator
    try:
        for _ in range(2):
            stage.grow()
            stage.job("one").finish()
        record = coordinator.board.find(TablePath.parse(TABLE))
        old = stage.lake.open_reader(record.info).snapshots()[0].snapshot_id
        if weak:
            coordinator.expiry.leases = WeakLeases(coordinator.board)
        with stage.foreign.load().transaction() as change:
            change.set_properties(
                {"history.expire.max-snapshot-age-ms": "0", "history.expire.min-snapshots-to-keep": "1"}
            )
        pause = faults.arm("lake.before-expire", "pause")
        stage.clock.advance(10**9)  # type: ignore[attr-defined]
        expiry = threading.Thread(target=coordinator.upkeep.expire, args=(record,), daemon=True)
        expiry.start()
        pause.wait_reached()
        leased = coordinator.leases.take(record.id, old, {}, 60.0)
        pause.release()
        expiry.join(120)
        gone = old not in {s.snapshot_id for s in stage.lake.open_reader(record.info).snapshots()}
        assert gone
        assert (leased is not None) is weak, "a snapshot that is marked to go cannot be leased"
    finally:
        stage.close()
