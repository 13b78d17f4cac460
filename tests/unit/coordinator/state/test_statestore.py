# SPDX-License-Identifier: Apache-2.0
"""The durable state: what a transaction keeps, what a newer file means, and what a start refuses."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from lakeward.coordinator.state.readlease import Mark
from lakeward.coordinator.state.statestore import StateStore
from lakeward.errors import DataFolderVersion, InvalidConfig
from lakeward.model import Epoch, ExpiringSnapshot, JobName, RoundId, RoundPhases, SideId, SnapshotId, TableId
from lakeward.model.side import COMPACT
from lakeward.protocol.views import RoundStatus
from tests.kit.world import PATH, CoordinatorWorld

VERSION_1 = """
create table meta (key text primary key, value text not null) without rowid;
create table tables (table_id text primary key, path text, state text, epoch integer, changed_at_ms integer, body text);
create table offsets (table_id text primary key, body text);
create table rounds (seq integer primary key, round_id text, table_id text, ended_at_ms integer, body text);
create table ledger (seq integer primary key, table_id text, generation integer, bucket text, start integer,
  stop integer, round_id text, snapshot_id text, epoch integer, job text, kind text, rows integer,
  committed_at_ms integer);
create table known_rounds (table_id text, round_id text, at_ms integer);
create table intents (round_id text primary key, table_id text, recorded_at_ms integer, state text, body text);
create table read_leases (lease_id text primary key, table_id text, snapshot_id text, ends_at_ms integer, offsets text);
"""
"""As its first files were, beside marks."""


def test_a_transaction_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    store = StateStore.open(tmp_path / "state.db")
    table, round_id = SideId(TableId("t")), RoundId("r")
    with pytest.raises(ZeroDivisionError), store.transaction():
        store.ledger.add_known_round(table, round_id, 1)
        raise ZeroDivisionError
    assert not store.ledger.is_known_round(table, round_id)
    with store.transaction(), store.transaction():
        store.ledger.add_known_round(table, round_id, 1)
    store.close()
    again = StateStore.open(tmp_path / "state.db")
    assert again.ledger.is_known_round(table, round_id)
    again.close()


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    store = StateStore.open(tmp_path / "state.db")
    store.set_meta("format_version", "99")
    store.close()
    with pytest.raises(DataFolderVersion) as caught:
        StateStore.open(tmp_path / "state.db")
    assert (caught.value.found, caught.value.known) == (99, 2)


def test_marks_of_an_older_file_are_kept(tmp_path: Path) -> None:
    """From before a mark said where the snapshot's files are."""
    path = tmp_path / "coordinator.db"
    old = sqlite3.connect(path)
    old.execute(
        "create table marks (table_id text not null, snapshot_id text not null, primary key (table_id, snapshot_id)) "
        "without rowid"
    )
    old.executescript(VERSION_1)
    old.execute("insert into marks values ('t', '7')")
    old.commit()
    old.close()
    for _ in range(2):
        store = StateStore.open(path)
        snapshot = ExpiringSnapshot(snapshot_id=SnapshotId("7"), trace="")
        assert store.load_marks() == [(SideId(TableId("t")), Mark(snapshot, None))]
        store.close()


def test_coordinator_epochs_grow_also_when_the_file_was_lost(world: CoordinatorWorld) -> None:
    seen = [world.coordinator.epoch]
    for lose_file in (False, True, False):
        world.restart(lose_file=lose_file)
        seen.append(world.coordinator.epoch)
    assert seen == sorted(set(seen))


def test_a_wrong_lake_configuration_refuses_to_start(world: CoordinatorWorld) -> None:
    world.create()
    lake = world.lake
    world.lake = WrongLake()  # type: ignore[assignment]
    with pytest.raises(InvalidConfig):
        world.restart()
    world.lake = lake
    world.restart()
    assert world.coordinator.views.table(PATH).reason is None


class WrongLake:
    def catalog(self) -> WrongLake:
        return self

    def check(self) -> None:
        raise InvalidConfig(where="datalake.memory", reason="no such warehouse")


def test_an_epoch_that_cannot_be_written_is_seen_by_nobody(world: CoordinatorWorld) -> None:
    world.create()
    world.hot.append(PATH)
    world.clock.advance(600)
    world.coordinator.board.store.connection.execute("pragma query_only = on")
    with pytest.raises(Exception, match="readonly"):
        world.job().take()
    world.coordinator.board.store.connection.execute("pragma query_only = off")
    (table,) = world.job(instance="i2").take()
    world.restart()
    assert world.coordinator.board.find(PATH).tier.epoch == table.epoch


def test_costs_are_summed_by_day_and_kind(world: CoordinatorWorld) -> None:
    world.create()
    store, side = world.coordinator.board.store, world.coordinator.board.find(PATH)
    day = 86_400_000
    ended = RoundStatus(
        round_id=RoundId("r"),
        path=PATH,
        epoch=Epoch(1),
        job=JobName("j"),
        outcome="done",
        started_at_ms=0,
        ended_at_ms=day,
        phases=RoundPhases(cpu_s=1.5),
        rows=10,
        bytes_written=100,
    )
    for told in (
        ended,
        ended,
        replace(ended, kind=COMPACT, bytes_read=70),
        replace(ended, ended_at_ms=0),
        replace(ended, ended_at_ms=4 * day, bytes_written=10**30, phases=RoundPhases(cpu_s=-1.0)),
    ):
        store.rounds.add_cost(side.id, told)
    costs = [
        (c.day, c.path, c.kind, c.rounds, c.cpu_s, c.bytes_written, c.bytes_read) for c in store.rounds.load_costs(4)
    ]
    assert costs == [
        ("1970-01-05", str(PATH), "tier", 1, 0.0, 2**50, 0),
        ("1970-01-02", str(PATH), "compact", 1, 1.5, 100, 70),
        ("1970-01-02", str(PATH), "tier", 2, 3.0, 200, 0),
    ]
