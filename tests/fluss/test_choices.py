# SPDX-License-Identifier: Apache-2.0
"""Ways out for people: a lake that holds less than Fluss knows, and a log that is not read."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lakeward.errors import NotFound
from lakeward.hot.fluss.lakehistory import Registered
from lakeward.hot.fluss.logmarks import ACCEPT_VARIABLE
from lakeward.model import Bucket, SnapshotId, TablePath
from lakeward.protocol.heartbeat import TableFailed, TableFinished
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import DATABASE, EVENTS, Append, MakeTable, events
from tests.fluss.world import FlussWorld

pytestmark = [pytest.mark.fluss, pytest.mark.soak]


def test_a_lake_from_a_backup_is_taken_as_it_is_when_a_person_says_so(
    world: FlussWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fluss knows a snapshot with 60 rows, the lake has the one before with 50: the ten come from the log again."""
    rounds = OnDemand(world)
    world.produce(
        MakeTable(name="backup", schema=EVENTS, buckets=1, freshness="1h"), Append(table="backup", rows=events(0, 50))
    )
    assert isinstance(rounds.run("backup"), TableFinished)
    world.produce(Append(table="backup", rows=events(50, 60)))
    coordinator, table = rounds.plugin.coordinator(), world.table("backup")
    lost = coordinator._write_offsets(table, {Bucket("", 0): 60})
    coordinator._register(table, Registered(SnapshotId("12345"), lost), {Bucket("", 0): 60})
    end = rounds.run("backup")
    assert isinstance(end, TableFailed)
    assert f"{ACCEPT_VARIABLE}={DATABASE}.backup" in end.error["message"]
    monkeypatch.setenv(ACCEPT_VARIABLE, f"{DATABASE}.other,{DATABASE}.backup")
    assert isinstance(rounds.run("backup"), TableFinished)
    monkeypatch.delenv(ACCEPT_VARIABLE)
    world.produce(Append(table="backup", rows=events(60, 70)))
    assert isinstance(rounds.run("backup"), TableFinished)
    assert sorted(world.rows("backup").column("id").to_pylist()) == list(range(70))
    assert world.committed("backup") == world.ends("backup")
    rounds.close()


def test_a_log_in_another_format_is_refused_in_words_and_keeps_no_other_table_from_anything(world: FlussWorld) -> None:
    rounds, other = OnDemand(world), {"table.log.format": "indexed"}
    world.produce(MakeTable(name="rows", schema=EVENTS, buckets=1, freshness="1h", properties=other))
    world.produce(MakeTable(name="beside", schema=EVENTS, buckets=1, freshness="1h"))
    end = rounds.run("rows")
    assert isinstance(end, TableFailed)
    assert "only logs in Arrow format" in end.error["message"]
    rounds.close()
    command = [sys.executable, "-m", "lakeward.cli", "verify", "--fluss", world.cluster.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert f"{DATABASE}.beside: holds" in done.stdout, done.stderr
    with pytest.raises(NotFound):
        world.plugin.store().load_table(TablePath(DATABASE, "neither"))
