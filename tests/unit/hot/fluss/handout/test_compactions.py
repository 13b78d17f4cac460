# SPDX-License-Identifier: Apache-2.0
"""Compactions between two rounds of a Fluss table, under the lease of the round: Fluss hears of its end after them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lakeward.errors import SplitFailed, to_wire
from lakeward.hot.fluss.handout.beats import beat_entry, beat_message, read_verdicts
from lakeward.hot.fluss.handout.compactions import LOOK_ROUNDS, QUIET_S, Compactions
from lakeward.hot.fluss.handout.epochs import join_epoch
from lakeward.model import TIER, Epoch, InstanceId, JobName, RoundId, RoundResult, SnapshotId, TableId
from lakeward.model.side import COMPACT
from lakeward.protocol.heartbeat import HeartbeatRequest, TableFailed, TableFinished, TableInWork, Verdict

T = TableId("7")
BASE = HeartbeatRequest(job=JobName("j"), instance=InstanceId("i"), room=2, kinds=(TIER, COMPACT))
ERROR = to_wire(SplitFailed(table="t", split="s", kind="k", text="x"))


def epoch(number: int) -> Epoch:
    return join_epoch(3, number)


def a_round(number: int, *, files: int = 1, force_finished: bool = False) -> TableFinished:
    round_id = RoundId(f"r{number}")
    result = RoundResult(round_id=round_id, snapshot_id=SnapshotId(str(number)), files=files)
    return TableFinished(
        table_id=T, epoch=epoch(number), round_id=round_id, result=result, force_finished=force_finished
    )


def compaction(number: int, *, is_more: bool = False) -> TableFinished:
    return TableFinished(table_id=T, epoch=epoch(number), kind=COMPACT, force_finished=is_more)


def running(number: int) -> TableInWork:
    return TableInWork(table_id=T, epoch=epoch(number), round_id=RoundId("c"), kind=COMPACT)


class Beats:
    """What Fluss is told, beat by beat, by a job that does as it is told."""

    def __init__(self, *, is_on: bool = True) -> None:
        self.compactions, self.now = Compactions(lambda _: is_on), 0.0

    def beat(self, answer: dict[str, Any] | None = None, **changes: Any) -> tuple[dict[str, Any], list[int]]:
        """The message, and the epochs of compactions that are handed out."""
        request = replace(BASE, **changes)
        told = self.compactions.translate(request, self.now)
        message = beat_message(told, self.compactions.renewed())
        handed = self.compactions.told(request, told, answer or {})
        return message, [e - epoch(0) for _, e in handed]


def entry(number: int) -> dict[str, Any]:
    return beat_entry(T, epoch(number))


def ids(entries: list[dict[str, Any]]) -> list[int]:
    return [e["tiering_epoch"] for e in entries]


def test_the_first_round_and_then_every_eighth_is_followed_by_a_compaction() -> None:
    beats = Beats()
    followed = []
    for number in range(1, 3 * LOOK_ROUNDS):
        message, handed = beats.beat(finished=(a_round(number),))
        if handed:
            followed.append(number)
            assert (message["finished"], message["tiering"]) == ([], [entry(number)]), "held, and renewed"
            message, _ = beats.beat(tiering=(running(number),))
            assert (message["finished"], message["tiering"]) == ([], [entry(number)])
            message, _ = beats.beat(finished=(compaction(number),))
        assert ids(message["finished"]) == [number]
    assert followed == [1, 1 + LOOK_ROUNDS, 1 + 2 * LOOK_ROUNDS]


def test_where_more_is_to_be_done_the_next_round_is_followed_too_whatever_it_wrote() -> None:
    beats = Beats()
    beats.beat(finished=(a_round(1),))
    beats.beat(finished=(compaction(1, is_more=True),))
    assert beats.beat(finished=(a_round(2, files=0),))[1] == [2]


def test_a_look_that_found_no_room_comes_after_the_next_round_whatever_that_wrote() -> None:
    beats = Beats()
    assert beats.beat(finished=(a_round(1),), room=0)[1] == []
    assert beats.beat(finished=(a_round(2, files=0),))[1] == [2]


def test_a_table_that_nothing_comes_to_is_looked_at_once_more_an_hour_later() -> None:
    beats = Beats()
    beats.beat(finished=(a_round(1),))
    beats.beat(finished=(compaction(1),))
    handed = []
    for number, beats.now in enumerate((QUIET_S - 1, QUIET_S, QUIET_S + 1), start=2):
        handed += beats.beat(finished=(a_round(number, files=0),))[1]
        beats.beat(finished=(compaction(number),))
    assert handed == [3]


def test_a_compaction_that_failed_is_no_failure_of_the_table() -> None:
    beats = Beats()
    beats.beat(finished=(a_round(1),))
    failed = TableFailed(table_id=T, epoch=epoch(1), error=ERROR, kind=COMPACT)
    message, _ = beats.beat(failed=(failed,))
    assert (ids(message["finished"]), message["failed"]) == ([1], [])
    assert beats.beat(finished=(a_round(2),))[1] == []


def test_no_compaction_follows_rounds_that_have_more_to_do_nor_where_there_is_no_room() -> None:
    for changes in (
        {"finished": (a_round(1, force_finished=True),)},
        {"finished": (a_round(1),), "room": 0},
        {"finished": (a_round(1),), "kinds": (TIER,)},
        {"finished": (a_round(1),), "leaving": True},
    ):
        message, handed = Beats().beat(**changes)
        assert (ids(message["finished"]), handed) == ([1], []), changes
    message, handed = Beats(is_on=False).beat(finished=(a_round(1),))
    assert (ids(message["finished"]), handed) == ([1], [])


def test_a_beat_without_an_answer_is_repeated_and_nothing_is_lost_or_told_twice() -> None:
    """The job tells the end again, as it had no answer; the round counts once."""
    beats = Beats()
    request = replace(BASE, finished=(a_round(1),))
    first = beats.compactions.translate(request, 0)
    assert first.finished == ()
    assert beats.beat(finished=(a_round(1),))[1] == [1]
    ended = replace(BASE, finished=(compaction(1),))
    assert (
        beats.compactions.translate(ended, 0).finished
        == beats.compactions.translate(ended, 0).finished
        == (a_round(1),)
    )
    beats.beat(finished=(compaction(1),))
    message, _ = beats.beat()
    assert (message["finished"], message["tiering"]) == ([], [])


def test_a_job_that_leaves_tells_the_round_that_ended_and_gives_nothing_back_as_failed() -> None:
    beats = Beats()
    beats.beat(finished=(a_round(1),))
    message, _ = beats.beat(tiering=(running(1),), leaving=True)
    assert (ids(message["finished"]), message["tiering"], message["failed"]) == ([1], [], [])


def test_a_compaction_that_the_job_lost_holds_the_table_no_longer() -> None:
    beats = Beats()
    beats.beat(finished=(a_round(1),))
    assert ids(beats.beat()[0]["finished"]) == [1]


def test_a_lease_that_fluss_refuses_stops_the_compaction_and_the_end_is_told_to_nobody() -> None:
    beats = Beats()
    beats.beat(finished=(a_round(1),))
    refused = {"tiering": [{"table_id": 7, "error": {"code": 50, "message": "fenced"}}]}
    request = replace(BASE, tiering=(running(1),))
    (verdict,) = read_verdicts(beats.compactions.translate(request, 0), refused)
    assert (verdict.verdict, verdict.kind, verdict.round_id) == (Verdict.FENCED, COMPACT, "c")
    beats.beat(refused, tiering=(running(1),))
    message, _ = beats.beat(failed=(TableFailed(table_id=T, epoch=epoch(1), error=ERROR, kind=COMPACT),))
    assert (message["finished"], message["failed"]) == ([], [])
