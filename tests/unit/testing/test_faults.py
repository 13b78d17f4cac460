# SPDX-License-Identifier: Apache-2.0
"""Faults: which hit acts, what it does, and how another process is told."""

from __future__ import annotations

import threading

import pytest

from lakeward.errors import FaultInjected, InvalidRequest, LakeUnavailable
from lakeward.model import FAULTS_ENV, fault_point
from lakeward_testing import Fault, Faults, wait_until


def hits(count: int, point: str = "a.step", **facts: object) -> list[int]:
    """Which of so many hits raised."""
    raised = []
    for number in range(count):
        try:
            fault_point(point, **facts)
        except FaultInjected:
            raised.append(number)
    return raised


def test_without_faults_a_point_is_passed() -> None:
    assert hits(3) == []


def test_the_nth_hit_acts_so_many_times() -> None:
    with Faults() as faults:
        fault = faults.arm("a.step", hit=2, times=2)
        assert hits(5) == [1, 2]
        assert (fault.hits, fault.acted) == (5, 2)
        assert hits(2, "another.step") == []
        faults.arm("another.step", times=None)
        assert hits(3, "another.step") == [0, 1, 2]
    assert hits(5) == []


def test_facts_may_choose() -> None:
    with Faults() as faults:
        faults.arm("a.step", times=None, when=lambda facts: facts["table"] == "x")
        assert hits(2, table="y") == []
        assert hits(2, table="x") == [0, 1]
    with Faults.from_text("a.step=raise,table=x"):
        assert hits(2, table="y") == hits(2) == []
        assert hits(2, table="x") == [0]


def test_any_error_can_be_raised() -> None:
    with Faults() as faults:
        faults.arm("a.step", error=lambda: LakeUnavailable(lake="memory", what="test", reason="told so"))
        with pytest.raises(LakeUnavailable):
            fault_point("a.step")


def test_chance_is_seeded() -> None:
    def draw(seed: int) -> list[int]:
        with Faults(seed=seed) as faults:
            faults.arm("a.step", times=None, chance=0.5)
            return hits(30)

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
    assert 0 < len(draw(1)) < 30


def test_faults_nest_and_are_taken_out_again() -> None:
    with Faults() as outer:
        outer.arm("a.step", times=None)
        with Faults():
            assert hits(1) == []
        assert hits(1) == [0]
    assert outer.seen == ["a.step"]


def test_a_pause_lasts_until_it_is_released() -> None:
    passed = threading.Event()

    def walk() -> None:
        fault_point("a.step")
        passed.set()

    with Faults() as faults:
        fault = faults.arm("a.step", "pause")
        thread = threading.Thread(target=walk)
        thread.start()
        fault.wait_reached()
        assert not passed.is_set()
        fault.release()
        thread.join(120)
    assert passed.is_set()


def test_the_text_form_reads_back() -> None:
    faults = Faults(
        Fault(point="a.b", hit=3, times=None),
        Fault.from_text("c.d=kill,once=/tmp/x"),
        Fault.from_text("e.f=pause,file=/tmp/y,chance=0.25"),
        seed=9,
    )
    again = Faults.from_text(faults.to_text())
    assert again.to_text() == faults.to_text()
    assert again.seed == 9


@pytest.mark.parametrize("text", ["a.b=explode", "a.b", "a.b=raise,often=3"])
def test_a_wrong_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=FAULTS_ENV):
        Faults.from_text(text)


def test_waiting_tolerates_what_it_is_told_to() -> None:
    tries: list[int] = []

    def fail_twice() -> bool:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError
        return True

    assert wait_until(fail_twice, tolerate=(ConnectionError,))
    with pytest.raises(ValueError, match="no"):
        wait_until(lambda: int("no"), tolerate=(ConnectionError,))
