# SPDX-License-Identifier: Apache-2.0
"""Where a table stands by what Fluss answers, and what is told of it: never of one that a job works on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakeward.errors import FlussError, InvalidTable
from lakeward.hot.fluss.failures import Code
from lakeward.hot.fluss.handout.heldnote import HeldNote
from lakeward.hot.fluss.handout.standing import Standing, StandingWatch, make_due
from lakeward.hot.fluss.wire.messages import Message
from lakeward.model import Column, Int32Type, Schema, TableDescriptor, TableId, TableInfo, TablePath
from lakeward_testing.clock import ManualClock

SCHEMA = Schema(columns=(Column(name="id", type=Int32Type(nullable=False)),))
TABLE = TableInfo(path=TablePath("db", "t"), table_id=TableId("7"), descriptor=TableDescriptor(schema=SCHEMA))


class Schedule:
    """Fluss's coordinator as seen: epochs first, then states. `moves` happen before a question."""

    def __init__(self, state: str, epoch: int = 3, moves: dict[int, tuple[str, int]] | None = None) -> None:
        self.state, self.epoch, self.moves = state, epoch, moves or {}
        self.asked, self.renewed, self.failed = 0, 0, []  # type: int, int, list[int]

    def beat(self, message: Message) -> Message:
        answer: dict[str, Any] = {"coordinator_epoch": 2}
        for what in ("tiering", "failed"):
            answer[what] = [self._answer(what, entry) for entry in message.get(what, [])]
        return answer

    def _answer(self, what: str, entry: Message) -> Message:
        self.state, self.epoch = self.moves.get(self.asked, (self.state, self.epoch))
        self.asked += 1
        assert entry["coordinator_epoch"] == 2
        if self.state == "gone":
            return {"table_id": 7, "error": {"code": Code.TABLE_NOT_FOUND, "message": "The table 7 doesn't exist."}}
        if entry["tiering_epoch"] != self.epoch:
            words = f"The tiering epoch {entry['tiering_epoch']} is not match current epoch {self.epoch} in coordinator"
            return {"table_id": 7, "error": {"code": Code.FENCED_EPOCH, "message": words}}
        if what == "failed":
            self.failed.append(entry["tiering_epoch"])
        elif self.state != "Tiering":
            words = f"The table 7 to renew tiering heartbeat must in Tiering state, but in {self.state} state."
            return {"table_id": 7, "error": {"code": Code.UNKNOWN, "message": words}}
        else:
            self.renewed += 1
        return {"table_id": 7}


@pytest.mark.parametrize(
    ("state", "standing", "failed"),
    [("Scheduled", Standing.WAITS, [3]), ("Pending", Standing.DUE, []), ("Tiering", Standing.IN_WORK, [])],
)
def test_only_a_table_that_waits_for_its_time_is_made_due(state: str, standing: Standing, failed: list[int]) -> None:
    fluss = Schedule(state)
    assert make_due(fluss.beat, TABLE) is standing
    assert fluss.failed == failed


def test_one_that_a_job_takes_between_two_questions_is_left_to_it() -> None:
    before_the_state, before_the_end = Schedule("Scheduled", moves={1: ("Tiering", 4)}), Schedule("Scheduled")
    assert make_due(before_the_state.beat, TABLE) is Standing.IN_WORK
    before_the_end.moves = {2: ("Tiering", 4)}
    make_due(before_the_end.beat, TABLE)
    assert before_the_state.failed == before_the_end.failed == []


def test_a_dead_job_keeps_its_lease_no_longer_because_somebody_waits() -> None:
    """Each renewal is one more lease: they end, for longer than a lease takes. What moves on is asked about at once."""
    fluss, clock = Schedule("Tiering"), ManualClock()
    watch, renewed = StandingWatch(fluss.beat, TABLE, clock), list[float]()
    for second in range(160):
        before = fluss.renewed
        assert watch.make_due("snapshot 1") is Standing.IN_WORK
        renewed += [second] * (fluss.renewed - before)
        clock.advance(1.0)
    assert renewed == [0, 2, 152]
    assert watch.make_due("snapshot 2") is Standing.IN_WORK
    assert fluss.renewed == 4
    fluss.state = "Scheduled"
    clock.advance(2.0)
    assert watch.make_due("snapshot 2") is Standing.WAITS
    fluss.state, fluss.epoch = "Tiering", 4
    assert watch.make_due("snapshot 2") is Standing.IN_WORK
    fluss.state, fluss.epoch = "Pending", 5
    assert watch.make_due("snapshot 2") is Standing.DUE


def test_calls_that_follow_each_other_renew_a_dead_jobs_lease_once(tmp_path: Path) -> None:
    fluss, clock, last = Schedule("Tiering"), ManualClock(monotonic=0.0), 0.0
    for _call in range(3):
        watch = StandingWatch(fluss.beat, TABLE, clock, HeldNote("cluster", clock, tmp_path))
        for _second in range(40):
            before = fluss.renewed
            assert watch.make_due("snapshot 1") is Standing.IN_WORK
            last = clock.monotonic() if fluss.renewed > before else last
            clock.advance(1.0)
    assert (fluss.renewed, last) == (2, 2.0)
    other = StandingWatch(fluss.beat, TABLE, clock, HeldNote("cluster", clock, tmp_path))
    assert other.make_due("snapshot 2") is Standing.IN_WORK
    assert fluss.renewed == 3, "the lake has changed: whoever worked on it was alive"
    fluss.state, fluss.epoch = "Pending", 4
    assert other.make_due("snapshot 2") is Standing.DUE


def test_one_that_is_not_tiered_and_an_answer_of_another_fluss_are_said_in_words() -> None:
    with pytest.raises(InvalidTable, match=r"table\.datalake\.enabled"):
        make_due(Schedule("gone").beat, TABLE)
    odd = {"coordinator_epoch": 2, "tiering": [{"table_id": 7, "error": {"code": -1, "message": "something else"}}]}
    with pytest.raises(FlussError, match="something else"):
        make_due(lambda _: odd, TABLE)
