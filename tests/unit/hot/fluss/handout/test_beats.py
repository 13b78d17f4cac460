# SPDX-License-Identifier: Apache-2.0
"""Our heartbeat as Fluss's: entries, epochs, verdicts, failures that are held back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.errors import SplitFailed, to_wire
from lakeward.hot.fluss.handout.beats import HeldBack, beat_entry, beat_message, read_lease, read_verdicts
from lakeward.hot.fluss.handout.epochs import join_epoch, split_epoch
from lakeward.model import InstanceId, JobName, RoundId, RoundResult, TableId
from lakeward.protocol.heartbeat import HeartbeatRequest, TableFailed, TableFinished, TableInWork, Verdict

EPOCH = join_epoch(3, 5)
WORK = TableInWork(table_id=TableId("7"), epoch=EPOCH, round_id=RoundId("r"))
FAILED = TableFailed(
    table_id=TableId("8"), epoch=EPOCH, error=to_wire(SplitFailed(table="t", split="s", kind="k", text="x"))
)
BASE = HeartbeatRequest(job=JobName("j"), instance=InstanceId("i"))
ENTRY = {"coordinator_epoch": 3, "tiering_epoch": 5, "stats": None}


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_an_epoch_holds_both_numbers_and_grows_over_restarts(coordinator: int, tiering: int, after: int) -> None:
    assert split_epoch(join_epoch(coordinator, tiering)) == (coordinator, tiering)
    assert join_epoch(coordinator + 1, after) > join_epoch(coordinator, tiering)


def test_tables_in_work_finished_and_room() -> None:
    done = TableFinished(
        table_id=TableId("9"),
        epoch=EPOCH,
        force_finished=True,
        result=RoundResult(round_id=RoundId("q"), snapshot_id=None, bytes_written=7, lake_bytes=90, lake_rows=4),
    )
    message = beat_message(replace(BASE, room=2, tiering=(WORK,), finished=(done,)))
    assert message["tiering"] == [{"table_id": 7, **ENTRY}]
    assert message["finished"] == [{"table_id": 9, **ENTRY, "stats": {"file_size": 90, "record_count": 4}}]
    assert (message["force_finished"], message["request_table"], message["failed"]) == ([9], 1, [])
    assert beat_message(BASE)["request_table"] is None


def test_a_job_that_leaves_gives_its_tables_back_as_failed() -> None:
    message = beat_message(replace(BASE, tiering=(WORK,), leaving=True))
    assert (message["tiering"], message["failed"]) == ([], [{"table_id": 7, **ENTRY}])


@pytest.mark.parametrize(
    ("code", "verdict"), [(7, Verdict.DROPPED), (23, Verdict.FENCED), (50, Verdict.FENCED), (-1, Verdict.FENCED)]
)
def test_a_refused_renewal_is_a_verdict(code: int, verdict: Verdict) -> None:
    answer = {
        "tiering": [
            {"table_id": 7, "error": {"code": code, "message": "why\nat org"}},
            {"table_id": 99, "error": {"code": 50}},
        ]
    }
    (found,) = read_verdicts(replace(BASE, tiering=(WORK,)), answer)
    assert (found.verdict, found.table_id, found.round_id) == (verdict, "7", "r")
    lease = read_lease(answer)
    assert not lease.held
    assert "org" not in lease.reason


def test_a_renewal_without_error_holds() -> None:
    assert read_verdicts(replace(BASE, tiering=(WORK,)), {"tiering": [{"table_id": 7}]}) == ()
    assert read_lease({"tiering": [{"table_id": 7}]}).held


def test_failures_are_told_later_each_time_and_the_table_is_renewed_meanwhile() -> None:
    held, key = HeldBack(first_s=2, ceiling_s=5), (FAILED.table_id, FAILED.epoch)
    waits = []
    for now in (0.0, 100.0, 200.0, 300.0):
        held.note(replace(BASE, failed=(FAILED,)), now)
        assert held.renewed(now) == [beat_entry(*key)]
        assert held.due(now) == []
        waits.append(next(s for s in range(10) if held.due(now + s)))
        held.told(held.due(now + 9))
        assert held.renewed(now) == []
    assert waits == [2, 4, 5, 5]
    held.note(replace(BASE, finished=(TableFinished(table_id=FAILED.table_id, epoch=EPOCH),)), 400.0)
    held.note(replace(BASE, failed=(FAILED,)), 400.0)
    assert held.due(402.0) == [key]


def test_a_table_that_is_given_back_is_told_at_once() -> None:
    held, back = HeldBack(), replace(BASE, failed=(replace(FAILED, given_back=True),))
    held.note(back, 0.0)
    assert held.renewed(0.0) == []
    assert beat_message(back)["failed"] == [{"table_id": 8, **ENTRY}]


def test_a_table_that_fails_for_months() -> None:
    """A thousand failures in a row are some 17 hours at a minute each."""
    held = HeldBack()
    for turn in range(1_100):
        failed = replace(FAILED, epoch=join_epoch(0, turn))
        held.note(replace(BASE, failed=(failed,)), 0.0)
        held.told(held.due(60.0))
    assert held.renewed(0.0) == []


def test_a_failure_that_is_told_again_does_not_wait_longer() -> None:
    """The answer to the first beat was lost."""
    held = HeldBack(first_s=2)
    for now in (0.0, 0.5, 1.0):
        held.note(replace(BASE, failed=(FAILED,)), now)
    assert held.due(2.0) == [(FAILED.table_id, FAILED.epoch)]


def test_a_failure_of_a_table_that_is_not_ours_any_more_is_told_to_nobody() -> None:
    """Fluss 0.9 counts from 0 again after a restart: another job may have the table under the very same number."""
    held = HeldBack(first_s=2)
    held.note(replace(BASE, failed=(FAILED,)), 0.0)
    held.refused({"tiering": [{"table_id": 7, "error": {"code": 50}}, {"table_id": 8}]})
    assert held.renewed(1.0) == [beat_entry(FAILED.table_id, FAILED.epoch)]
    held.refused({"tiering": [{"table_id": 8, "error": {"code": 50}}]})
    assert (held.renewed(1.0), held.due(5.0)) == ([], [])
