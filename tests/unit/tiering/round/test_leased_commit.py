# SPDX-License-Identifier: Apache-2.0
"""Commits to a catalog that is the coordinator's own: lease check and report travel with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lakeward.errors import CommitUnknown, InvalidRequest, LeaseLost
from lakeward.lake.core.committer import CoreCommitter
from lakeward.lake.core.history import LogSnapshot
from lakeward.lake.memory.log import MemoryGround
from lakeward.lake.memory.plugin import MemoryLakeStorage
from lakeward.model import IntentState, JobName, TableInfo
from lakeward.protocol.heartbeat import LeasedAnswer, LeasedCommit, TableFailed, TableFinished
from lakeward.spi import Committable, LakeCommitter
from tests.unit.tiering.world import BUCKET, BookCoordinator, World

BOOK = "book"


class OwnCoordinator(BookCoordinator):
    @property
    def coordinator_id(self) -> str:
        return BOOK


class OwnCatalog(MemoryLakeStorage):
    """In the coordinator's process. `before` and `after` are called around each commit, as the network is."""

    def __init__(self, world: World, coordinator_id: str = BOOK) -> None:
        super().__init__(world.memory)
        self.world, self.coordinator_id = world, coordinator_id
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None
        self.sent: list[LeasedCommit] = []

    def open_committer(self, table: TableInfo) -> LakeCommitter:
        return OwnCommitter(self, table)


class OwnCommitter(CoreCommitter[MemoryGround]):
    def __init__(self, catalog: OwnCatalog, table: TableInfo) -> None:
        super().__init__(catalog.open_table(table))
        self._catalog = catalog

    @property
    def coordinator_id(self) -> str:
        return self._catalog.coordinator_id

    def _append(self, request: Any, committable: Committable) -> tuple[LogSnapshot, LeasedAnswer | None]:
        leased = committable.leased
        if leased is None:
            return super()._append(request, committable)
        self._catalog.sent.append(leased)
        self._catalog.before()
        answer = self.take(request, committable, leased)
        self._catalog.after()
        return answer

    def take(
        self, request: Any, committable: Committable, leased: LeasedCommit
    ) -> tuple[LogSnapshot, LeasedAnswer | None]:
        coordinator = self._catalog.world.coordinator
        verdict = coordinator.check_lease(leased.check)
        if not verdict.held:
            raise LeaseLost(table="t", round_id=leased.check.round_id, job=leased.check.job, reason=verdict.reason)
        landed, _ = super()._append(request, replace(committable, leased=None))
        answer = coordinator.commit(replace(leased.report, snapshot_id=landed.snapshot_id))
        none = dict.fromkeys(("lake_rows", "lake_bytes", "lake_files", "lake_delete_files", "lake_snapshots"), 0)
        return landed, LeasedAnswer(answer=answer, **none)


@pytest.fixture
def world() -> World:
    made = World()
    made.coordinator = OwnCoordinator(made.table)
    made.lake = OwnCatalog(made)
    made.store.append([{"id": i, "name": f"n{i}"} for i in range(5)])
    return made


def catalog_of(world: World) -> OwnCatalog:
    assert isinstance(world.lake, OwnCatalog)
    return world.lake


def test_one_request_checks_commits_and_reports(world: World) -> None:
    end = world.run()
    assert isinstance(end, TableFinished), end
    (leased,) = catalog_of(world).sent
    assert leased.report.finished is not None
    assert leased.report.finished.result is not None
    assert leased.report.finished.result.rows == 5
    assert [r.round_id for r in world.coordinator.reports] == [leased.check.round_id]
    assert world.coordinator.offsets[BUCKET] == 5


def test_a_catalog_of_another_coordinator_gets_none(world: World) -> None:
    world.lake = OwnCatalog(world, "another")
    assert isinstance(world.run(), TableFinished)
    assert catalog_of(world).sent == []
    assert world.coordinator.offsets[BUCKET] == 5


def test_a_refused_commit_gives_the_table_back(world: World) -> None:
    world.coordinator.holder = None
    end = world.run()
    assert isinstance(end, TableFailed)
    assert (end.given_back, end.error["code"]) == (True, "lease-lost")
    assert world.snapshots() == 0
    assert [i.state for i in world.coordinator.intents.values()] == [IntentState.ABANDONED]


def test_a_request_that_was_refused_after_an_earlier_copy_landed_is_in_the_lake(world: World) -> None:
    """Model: a refused one looks for itself. The first copy is slow; it lands, and the lease ends, while the job looks
    for its round in vain."""
    catalog, late = catalog_of(world), list[Callable[[], object]]()

    def delay() -> None:
        catalog.before = land
        leased = catalog.sent[-1]
        committer = catalog.open_committer(world.table)
        assert isinstance(committer, OwnCommitter)
        late.append(lambda: committer.take(request[-1], committable[-1], leased))
        raise CommitUnknown(table="t", round_id=leased.check.round_id, reason="no answer")

    def land() -> None:
        late.pop()()
        world.coordinator.holder = None

    request, committable = list[Any](), list[Committable]()
    real = OwnCommitter._append

    class Watched(OwnCommitter):
        def _append(self, asked: Any, sent: Committable) -> tuple[LogSnapshot, LeasedAnswer | None]:
            request.append(asked)
            committable.append(sent)
            return real(self, asked, sent)

    catalog.open_committer = lambda table: Watched(catalog, table)  # type: ignore[method-assign]
    catalog.before = delay
    end = world.run()
    assert isinstance(end, TableFinished), end
    assert world.snapshots() == 1
    assert world.coordinator.offsets[BUCKET] == 5


def test_a_lost_answer_is_found_and_reported_once_more(world: World) -> None:
    catalog = catalog_of(world)

    def lose() -> None:
        catalog.after = lambda: None
        raise CommitUnknown(table="t", round_id=catalog.sent[-1].check.round_id, reason="no answer")

    catalog.after = lose
    end = world.run()
    assert isinstance(end, TableFinished), end
    assert world.snapshots() == 1
    assert len(world.coordinator.rounds) == 1
    assert len(catalog.sent) == 1


def test_check_and_report_of_different_work_are_refused(world: World) -> None:
    world.run()
    (leased,) = catalog_of(world).sent
    with pytest.raises(InvalidRequest, match="job"):
        replace(leased, report=replace(leased.report, job=JobName("another")))


def test_a_plan_that_starts_over_on_another_token_gives_the_round_up(world: World) -> None:
    """Its intent names the token of the first plan: orphan removal would take its files for those of a writer that can
    no longer commit."""
    world.lake = MemoryLakeStorage(world.memory)
    tries: list[int] = []

    def other_round_first() -> None:
        tries.append(1)
        if len(tries) == 1:
            world.store.on_freeze = lambda: None
            assert isinstance(world.run(), TableFinished)
            world.store.append([{"id": 9, "name": "n9"}])
            world.store.on_freeze = other_round_first
            from lakeward.errors import ServerUnavailable

            raise ServerUnavailable(address="here", reason="restarting")

    world.store.on_freeze = other_round_first
    end = world.run()
    assert isinstance(end, TableFailed)
    assert (end.given_back, end.error["code"]) == (True, "commit-conflict")
    assert world.snapshots() == 1
