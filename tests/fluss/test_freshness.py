# SPDX-License-Identifier: Apache-2.0
"""Freshness on a cluster: tables of five seconds through many rounds, and which of the tables due together
comes first.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest

from lakeward.model import InstanceId, JobName
from lakeward.protocol.heartbeat import HandedOut, HeartbeatRequest, TableFinished, TableInWork
from lakeward_testing.waiting import wait_until
from tests.fluss.steps import EVENTS, USERS, Append, Delete, MakePartition, MakeTable, Upsert
from tests.fluss.world import SYSTEM, FlussWorld, ThreadJob

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

DAILY = pa.schema([("id", pa.int64()), ("name", pa.string()), pa.field("day", pa.string(), nullable=False)])
DAYS = ("2024-01-01", "2024-01-02")
WAVES, WAVE = 4, 300
FRESHNESS_S = 4.0


def rows(wave: int) -> list[dict[str, object]]:
    return [{"id": n, "name": f"event {n}"} for n in range(wave * WAVE, (wave + 1) * WAVE)]


def test_tables_of_five_seconds_take_wave_after_wave(lone: FlussWorld) -> None:
    lone.produce(
        MakeTable(name="log", schema=EVENTS, freshness="5s"),
        MakeTable(name="pk", schema=USERS, primary_key=("id",), freshness="5s"),
        MakeTable(name="daily", schema=DAILY, partition_keys=("day",), freshness="5s"),
        *(MakePartition(table="daily", spec={"day": d}) for d in DAYS),
    )
    job = ThreadJob(lone.cluster.bootstrap, "five")
    try:
        for wave in range(WAVES):
            lone.produce(
                Append(table="log", rows=pa.RecordBatch.from_pylist(rows(wave), schema=EVENTS)),
                Upsert(table="pk", rows=[{"id": n, "name": f"wave {wave}"} for n in range(wave, WAVE)]),
                Delete(table="pk", keys=[{"id": WAVE - 1 - wave}]),
                *(
                    Append(
                        table="daily",
                        rows=pa.RecordBatch.from_pylist([{**r, "day": day} for r in rows(wave)], schema=DAILY),
                    )
                    for day in DAYS
                ),
            )
            for name in ("log", "pk", "daily"):
                lone.wait_tiered(name)
    finally:
        job.stop()
    everything = [r for wave in range(WAVES) for r in rows(wave)]
    assert lone.rows("log").sort_by("id").drop_columns(SYSTEM).to_pylist() == everything
    by_day = lone.rows("daily").sort_by([("day", "ascending"), ("id", "ascending")]).drop_columns(SYSTEM).to_pylist()
    assert by_day == [{**r, "day": day} for day in DAYS for r in everything]
    last = {n: min(n, WAVES - 1) for n in range(WAVE)}
    gone = {WAVE - WAVES}  # deleted before the last wave, a key is written again by it
    assert {k: r["name"] for k, r in lone.by_key("pk").items()} == {
        n: f"wave {w}" for n, w in last.items() if n not in gone
    }


class Hands:
    """A job that takes tables and says that their rounds have ended, without any round."""

    def __init__(self, world: FlussWorld) -> None:
        self._coordinator = world.plugin.coordinator()
        self._asks = HeartbeatRequest(job=JobName("hands"), instance=InstanceId("one"), slots=2)

    def take(self, room: int) -> list[HandedOut]:
        return list(self._coordinator.heartbeat(replace(self._asks, room=room)).tables)

    def keep(self, *held: HandedOut) -> None:
        self._coordinator.heartbeat(
            replace(self._asks, tiering=tuple(TableInWork(table_id=h.table_id, epoch=h.epoch) for h in held))
        )

    def finish(self, held: HandedOut) -> None:
        self._coordinator.heartbeat(
            replace(self._asks, finished=(TableFinished(table_id=held.table_id, epoch=held.epoch),))
        )


def test_of_tables_due_together_the_one_with_the_longer_round_comes_first(lone: FlussWorld) -> None:
    """Fluss hands them out as they became due, the short one first: that order leaves the long round too
    little time.
    """
    hands, held = Hands(lone), dict[str, HandedOut]()

    def is_handed(name: str) -> bool:
        hands.keep(*held.values())
        held.update({h.path.table: h for h in hands.take(1)})
        return name in held

    for name in (
        "long",
        "short",
    ):  # each waits for its freshness first: the round of `long` lasts through that of `short`
        lone.produce(MakeTable(name=name, schema=EVENTS, freshness=f"{FRESHNESS_S:.0f}s"))
        wait_until(partial(is_handed, name), poll_s=0.2, what=f"{name} handed out")
    hands.finish(held["short"])
    hands.finish(held["long"])
    ended = time.monotonic()
    wait_until(
        lambda: time.monotonic() - ended > FRESHNESS_S + 2, poll_s=0.2, what="both due"
    )  # Fluss's timers tick once a second
    assert [h.path.table for h in hands.take(2)] == ["long", "short"]
