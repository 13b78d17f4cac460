# SPDX-License-Identifier: Apache-2.0
"""The heartbeat loop and the job around it, against a coordinator that follows a script."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakeward.errors import FaultInjected, LakewardError, ServerUnavailable, SplitFailed, Superseded
from lakeward.model import TIER, Bucket, JobName, WorkKind, set_injector
from lakeward.protocol.heartbeat import HeartbeatAnswer, HeartbeatRequest, TableVerdict, Verdict
from lakeward.tiering.job.job import TieringJob
from lakeward.tiering.job.jobname import hold_name
from lakeward.tiering.work.control import RoundControl
from lakeward.tiering.work.dispatch import DirectDispatcher
from lakeward.tiering.work.kinds import KINDS
from lakeward_testing.waiting import wait_until
from tests.unit.tiering.world import BookCoordinator, World


class ScriptedCoordinator(BookCoordinator):
    """Hands out the table when told to, and keeps every beat. `on_beat` may raise or answer with verdicts."""

    def __init__(self, world: World) -> None:
        super().__init__(world.table)
        self.world = world
        self.beats: list[HeartbeatRequest] = []
        self.due, self.kind = 0, TIER
        self.on_beat: Callable[[HeartbeatRequest], tuple[TableVerdict, ...]] = lambda _r: ()
        self.lock = threading.Lock()

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        with self.lock:
            self.beats.append(request)
            verdicts = self.on_beat(request)
            tables = []
            if self.due and request.room and not request.tiering:
                self.due -= 1
                tables.append(self.world.hand_out(kind=self.kind))
            return HeartbeatAnswer(coordinator_epoch=1, verdicts=verdicts, tables=tuple(tables), next_beat_ms=50)

    def told(self, what: str) -> list[Any]:
        with self.lock:
            return [end for beat in self.beats for end in getattr(beat, what)]


class Running:
    """A job on threads of this process. `stop` ends it as SIGTERM would."""

    def __init__(self, world: World, coordinator: ScriptedCoordinator, **options: Any) -> None:
        world.coordinator = coordinator
        tuned = replace(world.options, heartbeat_s=0.05, slots=2, **options)
        shared = world.shared
        self.job = TieringJob(
            tuned, shared.hot, shared.plugins, world.dispatcher, name=JobName("j"), start_thread=_start
        )
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.job.run()
        except LakewardError as error:
            self.error = error

    def stop(self) -> None:
        self.job.stop()
        self.thread.join(120)
        assert not self.thread.is_alive()


def _start(target: Callable[[], None], name: str) -> None:
    threading.Thread(target=target, name=name, daemon=True).start()


def rows(start: int, stop: int) -> list[dict[str, object]]:
    return [{"id": i, "name": f"n{i}"} for i in range(start, stop)]


@pytest.fixture
def world() -> World:
    made = World()
    made.store.append(rows(0, 5))
    return made


def test_a_handed_out_table_is_tiered_and_told_at_once(world: World) -> None:
    coordinator = ScriptedCoordinator(world)
    running = Running(world, coordinator)
    coordinator.due = 1
    wait_until(lambda: coordinator.told("finished"))
    running.stop()
    (finished,) = coordinator.told("finished")
    assert finished.result.rows == 5
    assert coordinator.beats[-1].leaving
    assert world.lake_rows() == world.store.rows()
    assert running.job.metrics.render().count('kind="tier",outcome="finished"} 1') == 1


def test_a_round_that_waits_for_a_lake_leaves_its_slot_to_others(world: World) -> None:
    answers = threading.Event()

    def lose(name: str, _facts: dict[str, Any]) -> None:
        if name == "lake.before-commit" and not answers.is_set():
            raise FaultInjected(point=name)

    coordinator = ScriptedCoordinator(world)
    before = set_injector(lose)
    try:
        running = Running(world, coordinator)
        coordinator.due = 1
        wait_until(lambda: any(b.tiering and b.room == 2 for b in list(coordinator.beats)))
        answers.set()
        wait_until(lambda: coordinator.told("finished"))
        running.stop()
    finally:
        set_injector(before)
    first = next(b for b in coordinator.beats if b.tiering and b.room == 2)
    assert "lake.before-commit" in first.tiering[0].progress.trouble
    assert all(b.room == 1 for b in coordinator.beats if b.tiering and not b.tiering[0].progress.trouble)


def test_a_kind_of_work_that_a_job_does_not_know_is_given_back_in_words(world: World) -> None:
    coordinator = ScriptedCoordinator(world)
    coordinator.due, coordinator.kind = 1, WorkKind("polish")
    running = Running(world, coordinator)
    wait_until(lambda: coordinator.told("failed"))
    running.stop()
    assert coordinator.beats[0].kinds == tuple(KINDS)
    (failed,) = {f.epoch: f for f in coordinator.told("failed")}.values()
    assert (failed.given_back, failed.kind, failed.error["code"]) == (True, "polish", "unknown-work")
    assert "polish of table db.t" in failed.error["message"]


class Held:
    """A round held in its first batch; beats that come then are answered with a verdict."""

    def __init__(self, world: World, verdict: Verdict) -> None:
        self.coordinator = ScriptedCoordinator(world)
        self._verdict, self.reached, self._go_on = verdict, threading.Event(), threading.Event()
        world.store.before_batch = self._hold
        self.coordinator.on_beat = self._judge
        self.running = Running(world, self.coordinator, min_work_s=0.0)
        self.coordinator.due = 1
        assert self.reached.wait(120)

    def _hold(self, _bucket: Bucket, _offset: int) -> None:
        self.reached.set()
        assert self._go_on.wait(120)

    def _judge(self, request: HeartbeatRequest) -> tuple[TableVerdict, ...]:
        if not self.reached.is_set():
            return ()
        return tuple(
            TableVerdict(table_id=t.table_id, verdict=self._verdict, round_id=t.round_id, reason="why")
            for t in request.tiering
        )

    def go_on_when(self, told: Callable[[RoundControl], bool]) -> None:
        wait_until(
            lambda: any(told(w.control) for w in self.running.job.enumerator.works()), what="the verdict at the round"
        )
        self._go_on.set()


@pytest.mark.parametrize("verdict", [Verdict.FENCED, Verdict.PAUSED, Verdict.DROPPED])
def test_a_fenced_round_stops_before_it_commits(verdict: Verdict, world: World) -> None:
    held = Held(world, verdict)
    held.go_on_when(lambda control: control.stopped_by is not None)
    wait_until(lambda: held.coordinator.told("failed"))
    held.running.stop()
    assert held.coordinator.told("failed")[0].given_back
    assert world.snapshots() == 0


def test_a_round_told_to_finish_commits_what_it_has(world: World) -> None:
    world.store.append(rows(5, 9))
    held = Held(world, Verdict.FORCE_FINISH)
    held.go_on_when(lambda control: control.forced)
    wait_until(lambda: held.coordinator.told("finished"))
    held.running.stop()
    (finished,) = held.coordinator.told("finished")
    assert finished.force_finished
    assert finished.result.rows == 5, "the first batch, and not the second"
    assert world.snapshots() == 1


def test_a_control_that_says_forced_has_raised_its_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    control, write, said = RoundControl(tmp_path / "flag"), Path.write_text, list[bool]()

    def watched(path: Path, words: str) -> int:
        said.append(control.forced)
        return write(path, words)

    monkeypatch.setattr(Path, "write_text", watched)
    control.force()
    assert (said, control.forced, (tmp_path / "flag").read_text()) == ([False], True, "force")


def test_beats_tell_how_far_a_round_is(world: World) -> None:
    held = Held(world, Verdict.OK)
    wait_until(lambda: held.coordinator.beats[-1].tiering)
    (work,) = held.coordinator.beats[-1].tiering
    assert (work.progress.phase, work.progress.splits_done, work.progress.splits_total) == ("write", 0, 1)
    held.go_on_when(lambda _control: True)
    wait_until(lambda: held.coordinator.told("finished"))
    held.running.stop()


def test_a_verdict_for_another_round_is_not_this_rounds(world: World) -> None:
    coordinator = ScriptedCoordinator(world)

    def hold(_bucket: Bucket, _offset: int) -> None:
        wait_until(lambda: sum(bool(b.tiering) for b in coordinator.beats) > 2)

    world.store.before_batch = hold
    coordinator.on_beat = lambda request: tuple(
        TableVerdict(table_id=t.table_id, verdict=Verdict.FENCED, round_id="an older one")  # type: ignore[arg-type]
        for t in request.tiering
    )
    running = Running(world, coordinator)
    coordinator.due = 1
    wait_until(lambda: coordinator.told("finished"))
    running.stop()
    assert world.lake_rows() == world.store.rows()


def test_a_server_that_is_away_hears_of_the_end_when_it_is_back(world: World) -> None:
    coordinator = ScriptedCoordinator(world)
    lost: list[int] = []

    def lose(request: HeartbeatRequest) -> tuple[TableVerdict, ...]:
        if request.finished and len(lost) < 2:
            lost.append(1)
            raise ServerUnavailable(address="here", reason="restarting")
        return ()

    coordinator.on_beat = lose
    running = Running(world, coordinator)
    coordinator.due = 1
    wait_until(lambda: len(coordinator.told("finished")) >= 3)
    wait_until(lambda: not coordinator.beats[-1].finished)
    running.stop()
    assert len({f.round_id for f in coordinator.told("finished")}) == 1


def test_a_server_that_is_not_there_is_said_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """From the start: a wrong port. And later, at once."""
    coordinator, away = ScriptedCoordinator(world), threading.Event()

    def lose(_request: HeartbeatRequest) -> tuple[TableVerdict, ...]:
        if away.is_set():
            raise ServerUnavailable(address="here", reason="nobody listens")
        return ()

    def said() -> int:
        return caplog.text.count("heartbeat: no answer from here")

    away.set()
    coordinator.on_beat = lose
    running = Running(world, coordinator)
    wait_until(lambda: len(coordinator.beats) > 5)
    assert said() == 1
    away.clear()
    wait_until(lambda: running.job.enumerator.is_connected)
    away.set()
    wait_until(lambda: not running.job.enumerator.is_connected)
    beats = len(coordinator.beats)
    wait_until(lambda: len(coordinator.beats) > beats + 1)
    running.stop()
    assert said() == 2


def test_a_superseded_instance_stops_its_rounds_and_exits(world: World) -> None:
    coordinator = ScriptedCoordinator(world)

    def replaced(request: HeartbeatRequest) -> tuple[TableVerdict, ...]:
        if len(coordinator.beats) > 2:
            raise Superseded(job="j", instance=request.instance, by="other")
        return ()

    coordinator.on_beat = replaced
    running = Running(world, coordinator)
    running.thread.join(120)
    assert isinstance(running.error, Superseded)
    assert not any(b.leaving for b in coordinator.beats), "the leases are the newer instance's"


def test_shutdown_takes_no_new_rounds_and_gives_back_what_does_not_end(world: World) -> None:
    coordinator = ScriptedCoordinator(world)
    reached = threading.Event()

    def hang(_bucket: Bucket, _offset: int) -> None:
        reached.set()
        raise ServerUnavailable(address="here", reason="away for good")

    world.store.before_batch = hang
    running = Running(world, coordinator, shutdown_grace_s=0.5, server_wait_s=120.0)
    coordinator.due = 1
    reached.wait(120)
    coordinator.due = 5
    running.stop()
    assert coordinator.beats[-1].leaving, "the last beat gives every lease back"
    assert all(f.given_back for f in coordinator.told("failed"))
    assert coordinator.due == 5
    assert world.snapshots() == 0


def test_a_server_that_does_not_take_the_last_beat_keeps_no_job(world: World) -> None:
    coordinator = ScriptedCoordinator(world)
    answered = threading.Event()

    def silent(request: HeartbeatRequest) -> tuple[TableVerdict, ...]:
        if request.leaving:
            assert answered.wait(120)
        return ()

    coordinator.on_beat = silent
    running = Running(world, coordinator, leave_limit_s=0.1)
    running.stop()
    assert not answered.is_set()
    answered.set()


def test_one_tables_error_leaves_the_job_running(world: World) -> None:
    coordinator = ScriptedCoordinator(world)

    def broken(_bucket: Bucket, _offset: int) -> None:
        world.store.before_batch = lambda _b, _o: None
        raise ValueError("broken")

    world.store.before_batch = broken
    running = Running(world, coordinator)
    coordinator.due = 2
    wait_until(lambda: coordinator.told("failed") and coordinator.told("finished"))
    running.stop()
    assert coordinator.told("failed")[0].error["code"] == "split-failed"
    assert world.lake_rows() == world.store.rows()


class DeadDispatcher(DirectDispatcher):
    def run(self, orders: Any, control: Any, *, is_small: bool, progressed: Any) -> Any:
        raise SplitFailed(table="t", split="Spark job", kind="Py4JNetworkError", text="nobody answers")

    def is_alive(self) -> bool:
        return False


def test_a_job_whose_spark_is_gone_ends_with_the_reason(world: World) -> None:
    coordinator = ScriptedCoordinator(world)
    world.dispatcher = DeadDispatcher(world.shared.plugins)
    coordinator.due = 1
    running = Running(world, coordinator)
    running.thread.join(120)
    assert isinstance(running.error, SplitFailed)
    assert "start the job again" in str(running.error)
    assert coordinator.beats[-1].leaving


def test_two_jobs_on_one_host_never_share_a_default_name(tmp_path: Path) -> None:
    with hold_name(None, tmp_path) as first, hold_name(None, tmp_path) as second:
        assert first.name != second.name
    with hold_name(None, tmp_path) as again:
        assert again.name in (first.name, second.name), "a job that comes back finds its name"
    assert hold_name("mine", tmp_path).name == "mine"
