# SPDX-License-Identifier: Apache-2.0
"""Intents as objects beside the table, and orphan removal by a job that has nothing else to go by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.lake.orphans import OrphanOptions
from lakeward.model import NO_EPOCH, IntentState, RoundId, RoundResult, SideName, SystemClock, TableInfo
from lakeward.protocol.heartbeat import TableFinished
from lakeward.spi import CoordinatorClient, HotPlugin, HotStore, PluginCache
from lakeward.tiering.job.orphans import OrphanDuty
from lakeward_testing.clock import ManualClock
from lakeward_testing.lakes.removal import intent_of
from lakeward_testing.lakes.rounds import LakeRound
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from tests.kit.scripted_store import ScriptedHotStore


def test_an_intent_is_recorded_abandoned_and_forgotten(lake: IcebergLakeStorage) -> None:
    log = LakeSuite().make_log(lake)
    intents, made = lake.open_intents(log.table), LakeRound.plan(lake, log)
    intent = intent_of(made)
    intents.record(intent)
    intents.record(replace(intent, recorded_at_ms=9))
    assert intents.open_intents(log.table.table_id) == [intent]
    intents.abandon(made.round_id)
    intents.abandon(RoundId("nobody"))
    assert intents.open_intents(log.table.table_id) == [replace(intent, state=IntentState.ABANDONED)]
    intents.forget(made.round_id)
    intents.forget(made.round_id)
    assert intents.open_intents(log.table.table_id) == []


def test_a_round_that_landed_counts_as_committed(lake: IcebergLakeStorage) -> None:
    log = LakeSuite().make_log(lake)
    log.append(B0, row(1))
    made = LakeRound.plan(lake, log)
    lake.open_intents(log.table).record(intent_of(made))
    made.run()
    (found,) = lake.open_intents(log.table).open_intents(log.table.table_id)
    assert found.state is IntentState.COMMITTED


class LoneHot(HotPlugin):
    """A hot store whose coordinator removes no orphans."""

    name, options, is_upkept = "lone", {}, False

    def __init__(self, table: TableInfo) -> None:
        self._store = ScriptedHotStore()
        self._store.create(table)

    def store(self) -> HotStore:
        return self._store

    def coordinator(self) -> CoordinatorClient:
        raise NotImplementedError

    def lake_options(self, table: TableInfo, side: SideName | None = None) -> tuple[str, Mapping[str, str]]:
        return "iceberg", {}


def test_the_job_removes_what_a_dead_round_left_after_the_next_commit(lake: IcebergLakeStorage, tmp_path: Path) -> None:
    log = LakeSuite().make_log(lake)
    log.append(B0, row(1))
    dead = LakeRound.plan(lake, log)
    intents = lake.open_intents(log.table)
    intents.record(intent_of(dead))
    dead.write(B0)
    clock = ManualClock(now_ms=SystemClock().now_ms() + 3_600_000)  # files have the machine's time
    plugins = PluginCache(open_lake=lambda _name, _options: lake)
    duty = OrphanDuty(LoneHot(log.table), plugins, clock, OrphanOptions(grace_ms=0, max_age_ms=0), interval_s=60)
    left = set(tmp_path.rglob(f"*{dead.round_id}*.parquet"))
    assert left
    made = LakeRound.plan(lake, log)
    intents.record(intent_of(made))
    snapshot = made.run()
    result = RoundResult(round_id=made.round_id, snapshot_id=snapshot.snapshot_id)
    done = TableFinished(table_id=log.table.table_id, epoch=NO_EPOCH, result=result)
    clock.advance(100)
    duty.after_round(log.table.path, replace(done, result=None))
    assert set(tmp_path.rglob(f"*{dead.round_id}*.parquet")) == left
    duty.after_round(log.table.path, done)
    assert not set(tmp_path.rglob(f"*{dead.round_id}*.parquet"))
    assert set(tmp_path.rglob(f"*{made.round_id}*.parquet"))
    assert intents.open_intents(log.table.table_id) == []
