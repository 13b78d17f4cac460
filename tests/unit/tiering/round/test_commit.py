# SPDX-License-Identifier: Apache-2.0
"""The commit of a round against everything that can come between: design.md 6.5, case by case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lakeward.errors import FaultInjected, ServerUnavailable
from lakeward.lake.core.committer import CoreCommitter
from lakeward.lake.memory.log import MemoryGround
from lakeward.lake.memory.plugin import MemoryLakeStorage
from lakeward.model import IntentState, LedgerKind, TableInfo, new_round_id, set_injector
from lakeward.protocol.heartbeat import TableFailed, TableFinished
from lakeward.spi import Committable, LakeCommitter, LakeSnapshot, Precondition
from lakeward.tiering.work.control import RoundControl
from lakeward.tiering.work.landing import CommitLimits
from lakeward_testing.clock import ManualClock
from lakeward_testing.faults import Faults
from tests.kit.memoryforeign import MemoryForeignEngine
from tests.unit.tiering.world import BUCKET, World, make_table


def rows(start: int, stop: int, name: str = "n") -> list[dict[str, object]]:
    return [{"id": i, "name": f"{name}{i}"} for i in range(start, stop)]


def at_point(point: str, act: Callable[[], object]) -> Callable[[str, dict[str, Any]], None]:
    """An injector that acts once, at the first hit of one point."""
    done: list[int] = []

    def inject(name: str, _facts: dict[str, Any]) -> None:
        if name == point and not done:
            done.append(1)
            act()

    return inject


@pytest.fixture
def world() -> World:
    made = World()
    made.store.append(rows(0, 5))
    return made


@pytest.fixture
def inject() -> Any:
    before = set_injector(None)
    yield set_injector
    set_injector(before)


def test_a_foreign_commit_in_between_is_resolved_again_on_the_new_head(inject: Any) -> None:
    world = World(make_table("id BIGINT NOT NULL", "name STRING", key=("id",)))
    world.store.upsert(rows(0, 10))
    world.run()
    world.store.upsert(rows(0, 5, "new"))
    engine = MemoryForeignEngine(world.memory, world.table.path)
    inject(at_point("round.before-lake-commit", engine.compact))
    checks: list[int] = []
    world.coordinator.before_check = lambda: checks.append(1)
    assert isinstance(world.run(), TableFinished)
    assert world.lake_rows() == world.store.rows()
    assert len(checks) == 2, "the lease is checked again before the second try"


def test_foreign_commits_without_end_fail_the_round_in_the_end(world: World, inject: Any) -> None:
    world.run()
    world.store.append(rows(5, 9))
    engine = MemoryForeignEngine(world.memory, world.table.path)
    world.shared = replace(world.shared, options=replace(world.options, commit=CommitLimits(foreign_commits=2)))
    inject(lambda name, _facts: engine.touch() if name == "round.before-lake-commit" else None)
    end = world.run()
    assert isinstance(end, TableFailed)
    assert end.error["code"] == "commit-conflict"
    assert not end.given_back
    inject(None)
    world.run()
    assert world.lake_rows() == world.store.rows()


def test_the_loser_of_a_race_adopts_and_gives_the_table_back(world: World, inject: Any) -> None:
    inject(at_point("round.before-lake-commit", lambda: winner.append(world.run())))
    winner: list[object] = []
    end = world.run()
    assert isinstance(winner[0], TableFinished)
    assert isinstance(end, TableFailed)
    assert end.given_back, "losing a race is no failure"
    assert world.snapshots() == 1
    assert world.lake_rows() == world.store.rows()
    states = [i.state for i in world.coordinator.intents.values()]
    assert states.count(IntentState.ABANDONED) == 1


def test_a_zombie_that_wakes_after_another_round_commits_nothing(world: World, inject: Any) -> None:
    """It was paused right before its lake commit; meanwhile another round took the same offsets and more."""

    def meanwhile() -> None:
        world.store.append(rows(5, 9))
        world.run()

    inject(at_point("round.before-lake-commit", meanwhile))
    end = world.run()
    assert isinstance(end, TableFailed)
    assert end.given_back
    assert world.lake_rows() == world.store.rows()
    assert world.snapshots() == 1


def test_the_fence_of_orphan_removal_breaks_a_paused_rounds_precondition(world: World, inject: Any) -> None:
    """No offset moved, only the token: the files of the paused round may be gone by now."""
    world.run()
    world.store.append(rows(5, 9))

    def fence() -> None:
        base = world.reader.load_base()
        world.lake.open_maintenance(world.table).fence(base, new_round_id(), 1)

    inject(at_point("round.before-resolve", fence))
    end = world.run()
    assert isinstance(end, TableFailed)
    assert end.given_back
    assert len(world.lake_rows()) == 5
    assert isinstance(world.run(), TableFinished)
    assert world.lake_rows() == world.store.rows()


def test_an_answer_that_was_lost_after_the_commit_took_effect_is_found(world: World) -> None:
    with Faults() as faults:
        faults.arm("lake.after-commit")
        end = world.run()
    assert isinstance(end, TableFinished)
    assert end.result is not None
    assert world.snapshots() == 1
    assert world.coordinator.offsets[BUCKET] == 5


def test_a_request_that_was_lost_is_sent_again_unchanged(world: World) -> None:
    with Faults() as faults:
        faults.arm("lake.before-commit", times=3)
        end = world.run()
    assert isinstance(end, TableFinished)
    assert faults.seen.count("lake.before-commit") == 4
    assert faults.seen.count("round.before-resolve") == 1, "the identical request, not a new one"
    assert world.snapshots() == 1
    assert world.lake_rows() == world.store.rows()


def test_a_commit_that_is_not_answered_says_so_and_why(world: World, inject: Any, caplog: Any) -> None:
    """It may last for hours: whoever looks at the table meanwhile finds the reason."""
    control, seen = RoundControl(), list[str]()

    def lose(name: str, _facts: dict[str, Any]) -> None:
        if name == "lake.before-commit":
            seen.append(control.progress.trouble)
            if len(seen) < 4:
                raise FaultInjected(point=name)

    inject(lose)
    assert isinstance(world.round(control=control).run(), TableFinished)
    assert seen[0] == ""
    assert all("lake.before-commit" in trouble for trouble in seen[1:])
    assert control.progress.trouble == ""
    (said,) = [r.getMessage() for r in caplog.records if r.name == "lakeward.tiering"]
    assert "a commit is asked for again until it is answered" in said


def test_an_unknown_outcome_whose_snapshot_was_expired_is_found_in_the_ledger(world: World, inject: Any) -> None:
    """The commit landed and was reported by the coordinator's own look; two more rounds and expiry took the
    snapshot.
    """
    round_ = world.round()
    landed: list[int] = []

    def lose(name: str, _facts: dict[str, Any]) -> None:
        if name == "lake.after-commit" and not landed:
            landed.append(1)
            set_injector(None)
            world.run()  # adopts: the ledger knows the round
            world.store.append(rows(5, 7))
            world.run()
            MemoryForeignEngine(world.memory, world.table.path).expire()
            raise FaultInjected(point=name)

    inject(lose)
    end = round_.run()
    assert isinstance(end, TableFinished), end
    assert world.lake_rows() == world.store.rows()


class EagerCommitter(CoreCommitter[MemoryGround]):
    """As if the transport had sent the request again after it took effect: the second answer is all that is seen."""

    def commit(self, committable: Committable, precondition: Precondition) -> LakeSnapshot:
        super().commit(committable, precondition)
        return super().commit(committable, precondition)


class EagerStorage(MemoryLakeStorage):
    def open_committer(self, table: TableInfo) -> LakeCommitter:
        return EagerCommitter(self.open_table(table))


def test_a_transport_that_retried_into_its_own_commit_is_no_conflict(world: World) -> None:
    world.lake = EagerStorage(world.memory)
    end = world.run()
    assert isinstance(end, TableFinished)
    assert world.snapshots() == 1


def test_no_commit_without_the_lease(world: World) -> None:
    world.coordinator.holder = None
    end = world.run()
    assert isinstance(end, TableFailed)
    assert end.given_back
    assert end.error["code"] == "lease-lost"
    assert world.snapshots() == 0


def test_a_lease_check_is_asked_again_while_the_server_is_away(world: World) -> None:
    away = [1, 1]

    def lose() -> None:
        if away:
            away.pop()
            raise ServerUnavailable(address="here", reason="restarting")

    world.coordinator.before_check = lose
    assert isinstance(world.run(), TableFinished)
    assert world.lake_rows() == world.store.rows()


def test_a_lease_check_that_is_never_answered_stops_the_round(world: World) -> None:
    world.shared = replace(world.shared, options=replace(world.options, commit=CommitLimits(server_wait_s=0)))

    def lose() -> None:
        raise ServerUnavailable(address="here", reason="gone")

    world.coordinator.before_check = lose
    end = world.run()
    assert isinstance(end, TableFailed)
    assert end.given_back
    assert world.snapshots() == 0


def test_a_round_that_is_too_old_never_commits() -> None:
    clock = ManualClock()
    world = World(clock=clock)
    world.store.append(rows(0, 5))
    world.store.before_batch = lambda _b, _o: clock.advance(3 * 24 * 3600)
    end = world.run()
    assert isinstance(end, TableFailed)
    assert end.error["code"] == "round-too-old"
    assert world.snapshots() == 0


def test_a_coordinator_commit_is_sent_until_it_is_answered(world: World) -> None:
    away = [1, 1]

    def lose() -> None:
        if away:
            away.pop()
            raise ServerUnavailable(address="here", reason="restarting")

    world.coordinator.before_commit = lose
    assert isinstance(world.run(), TableFinished)
    assert [r.kind for r in world.coordinator.rounds] == [LedgerKind.ROUND]


def test_a_ledger_with_a_gap_adopts_what_the_lake_holds(world: World, inject: Any) -> None:
    """The coordinator's database went back to an old copy while the round was on its way."""
    world.run()
    world.store.append(rows(5, 9))

    def forget() -> None:
        world.coordinator.offsets = type(world.coordinator.offsets)({BUCKET: 2})

    inject(at_point("round.before-coordinator-commit", forget))
    assert isinstance(world.run(), TableFinished)
    assert world.coordinator.offsets[BUCKET] == 9


def test_a_stopped_round_commits_nothing_even_when_its_rows_are_written(world: World, inject: Any) -> None:
    from lakeward.errors import LeaseLost
    from lakeward.tiering.work.control import RoundControl

    control = RoundControl()
    lost = LeaseLost(table="t", round_id="r", job="j", reason="fenced")
    inject(at_point("round.written", lambda: control.stop(lost)))
    end = world.run(control=control)
    assert isinstance(end, TableFailed)
    assert end.given_back
    assert world.snapshots() == 0
