# SPDX-License-Identifier: Apache-2.0
"""Tables handed out together are begun by what is left of their freshness."""

from __future__ import annotations

from dataclasses import replace

from lakeward.errors import SplitFailed, to_wire
from lakeward.hot.fluss.handout.epochs import join_epoch
from lakeward.hot.fluss.handout.slack import Slack
from lakeward.model import InstanceId, JobName, TableId, TablePath
from lakeward.protocol.heartbeat import HandedOut, HeartbeatRequest, TableFailed, TableFinished

EPOCH = join_epoch(0, 1)
BASE = HeartbeatRequest(job=JobName("j"), instance=InstanceId("i"))


def table(name: str, freshness_s: int) -> HandedOut:
    return HandedOut(table_id=TableId(name), path=TablePath("shop", name), epoch=EPOCH, freshness_ms=freshness_s * 1000)


def done(slack: Slack, name: str, now: float) -> None:
    slack.note(replace(BASE, finished=(TableFinished(table_id=TableId(name), epoch=EPOCH),)), now)


def names(found: object) -> list[str]:
    assert isinstance(found, list)
    return [h.table_id for h in found]


def test_a_short_freshness_goes_before_a_long_one_that_came_first() -> None:
    slack, slow, quick = Slack(), table("slow", 600), table("quick", 5)
    assert names(slack.order([slow, quick], 0.0)) == ["slow", "quick"]
    done(slack, "slow", 1.0)
    done(slack, "quick", 1.0)
    assert names(slack.order([slow, quick], 8.0)) == ["quick", "slow"]


def test_a_long_round_needs_an_early_start() -> None:
    slack, long, short = Slack(), table("long", 60), table("short", 60)
    slack.order([short, long], 0.0)
    done(slack, "short", 1.0)
    done(slack, "long", 20.0)
    assert slack.of(long, 50.0) == 60 - 30 - 20
    assert slack.of(short, 50.0) == 60 - 49 - 1
    slack.order([short, long], 100.0)
    done(slack, "short", 101.0)
    done(slack, "long", 101.0)
    slack.order([long], 110.0)
    done(slack, "long", 140.0)
    assert names(slack.order([short, long], 171.0)) == ["short", "long"]
    assert slack.of(long, 171.0) == 60 - 31 - 30


def test_a_table_not_seen_before_is_due_now_and_an_end_told_twice_counts_once() -> None:
    slack, new, old = Slack(), table("new", 5), table("old", 100)
    slack.order([old], 0.0)
    done(slack, "old", 2.0)
    done(slack, "old", 90.0)
    assert slack.of(old, 90.0) == 100 - 88 - 2
    assert names(slack.order([old, new], 50.0)) == ["new", "old"]


def test_a_failed_round_says_nothing_of_how_long_one_takes() -> None:
    slack, failing = Slack(), table("failing", 10)
    slack.order([failing], 0.0)
    error = to_wire(SplitFailed(table="t", split="s", kind="k", text="x"))
    slack.note(replace(BASE, failed=(TableFailed(table_id=TableId("failing"), epoch=EPOCH, error=error),)), 9.0)
    assert slack.of(failing, 9.0) == 0.0
