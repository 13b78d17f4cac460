# SPDX-License-Identifier: Apache-2.0
"""`lakeward tier-now --fluss`: a table comes due before its freshness is over, and a job that has it keeps it."""

from __future__ import annotations

import json

import pytest

from lakeward.cli.cluster import compact_cluster_now, tier_cluster_now
from lakeward.errors import InvalidTable
from lakeward.hot.fluss.handout.standing import Standing
from lakeward.model import InstanceId, JobName, RoundId, TablePath
from lakeward.protocol.heartbeat import LeaseCheck
from tests.fluss.steps import DATABASE, EVENTS, USERS, Append, MakeTable, Upsert, events
from tests.fluss.test_handover import LEASE_S
from tests.fluss.world import FlussWorld, ThreadJob

pytestmark = [pytest.mark.fluss, pytest.mark.soak]


def test_nobody_is_there_so_it_runs_here(lone: FlussWorld, capsys: pytest.CaptureFixture[str]) -> None:
    """Then a job: it takes the table, long before the hour is over. A table that a job has is left to it."""
    bootstrap, name = lone.cluster.bootstrap, f"{DATABASE}.asked"
    lone.produce(
        MakeTable(name="asked", schema=EVENTS, buckets=2, freshness="1h"),
        MakeTable(name="held", schema=USERS, primary_key=("id",), buckets=1, freshness="1h"),
        MakeTable(name="first", schema=EVENTS, buckets=1, freshness="1s"),
        MakeTable(name="hot_only", schema=EVENTS, buckets=1, properties={"table.datalake.enabled": "false"}),
        Append(table="asked", rows=events(0, 10)),
    )

    def told() -> dict[str, object]:
        answer: dict[str, object] = json.loads(capsys.readouterr().out)
        return answer

    tier_cluster_now(bootstrap, None, name, 100.0, as_json=True)
    assert told()["ran_here"] is True
    assert len(lone.rows("asked")) == 10
    compact_cluster_now(bootstrap, None, name, as_json=True)
    assert told() == {"table": name, "files_replaced": 0, "files": 0, "more": False}

    held, coordinator = lone.table("held"), lone.plugin.coordinator()
    assert coordinator.watch(held).make_due("") is Standing.WAITS
    assert coordinator.watch(held).make_due("") is Standing.DUE
    handed = coordinator.take(held.path)
    assert handed is not None
    assert coordinator.watch(held).make_due("") is Standing.IN_WORK
    ours = LeaseCheck(
        job=JobName("one"),
        instance=InstanceId("i"),
        table_id=held.table_id,
        epoch=handed.epoch,
        round_id=RoundId("r"),
    )
    assert coordinator.check_lease(ours).held
    lone.produce(Upsert(table="held", rows=[{"id": 1, "name": "late"}]))
    tier_cluster_now(bootstrap, None, str(held.path), LEASE_S, as_json=True)  # the lease is nobody's: it ends
    assert told()["ran_here"] is True
    assert len(lone.rows("held")) == 1
    with pytest.raises(InvalidTable, match=r"table\.datalake\.enabled"):
        coordinator.watch(lone.table("hot_only")).make_due("")
    assert coordinator.take(TablePath(DATABASE, "asked")) is None  # its time has not come; others are given back

    job = ThreadJob(bootstrap, "runs")
    try:
        lone.produce(Append(table="asked", rows=events(10, 25)), Append(table="first", rows=events(0, 1)))
        lone.wait_tiered("first", limit_s=100)  # by then it asks for tables twice a second
        tier_cluster_now(bootstrap, None, name, 100.0, as_json=True)
        assert told()["ran_here"] is False
        assert len(lone.rows("asked")) == 25
    finally:
        job.stop()
