# SPDX-License-Identifier: Apache-2.0
"""`lakeward status`, `rounds`, `explain` and `jobs` of a cluster: what is behind and by how much, and who did what."""

from __future__ import annotations

import json
from typing import Any

import pytest
import typer

from lakeward.cli.app import run
from lakeward.cli.cluster import show_jobs, show_next_round, show_rounds, show_status
from lakeward.protocol.heartbeat import TableFinished
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import DATABASE, EVENTS, USERS, Append, MakeTable, Upsert, events
from tests.fluss.world import FlussWorld

pytestmark = pytest.mark.fluss

INDEXED = {"table.log.format": "indexed"}


@pytest.mark.soak
def test_what_goes_on_in_a_cluster(world: FlussWorld, rounds: OnDemand, capsys: pytest.CaptureFixture[str]) -> None:
    """A table with rows that the lake lacks, one that is up to date, and one that is not tiered by us."""
    bootstrap, log, pk = world.cluster.bootstrap, f"{DATABASE}.seen", f"{DATABASE}.seen_pk"
    world.produce(
        MakeTable(name="seen", schema=EVENTS, buckets=1, freshness="1h"),
        MakeTable(name="seen_pk", schema=USERS, primary_key=("id",), buckets=1, freshness="1h"),
        MakeTable(name="seen_rows", schema=EVENTS, buckets=1, freshness="1h", properties=INDEXED),
        Append(table="seen", rows=events(0, 10)),
        Upsert(table="seen_pk", rows=[{"id": n, "name": "first"} for n in range(3)]),
    )
    for name in ("seen", "seen_pk"):
        assert isinstance(rounds.run(name), TableFinished)
    world.produce(Append(table="seen", rows=events(10, 17)), Upsert(table="seen_pk", rows=[{"id": 1, "name": "new"}]))
    assert isinstance(rounds.run("seen_pk"), TableFinished)

    def told() -> Any:
        return json.loads(capsys.readouterr().out)

    try:
        show_status(bootstrap, None, as_json=True)
    except typer.Exit as end:  # other tests' tables are late
        assert end.exit_code == 1  # noqa: PT017
    tables = {t["path"]: t for t in told()}
    seen = tables[log]
    assert (seen["state"], seen["waiting"], seen["job"], seen["totals"]["rows"]) == ("behind", 7, "on-demand", 10)
    assert 0 < seen["lag_ms"] < 600_000
    assert (tables[pk]["state"], tables[pk]["waiting"], tables[pk]["totals"]["rows"]) == ("current", 0, 3)
    refused = tables[f"{DATABASE}.seen_rows"]
    assert (refused["state"], "only logs in Arrow format" in refused["reason"]) == ("refused", True)

    show_rounds(bootstrap, None, pk, 20, as_json=True)
    assert [(c["kind"], c["rows"], c["deletes"], c["job"]) for c in told()] == [
        ("tier", 1, 1, "on-demand"),
        ("tier", 3, 0, "on-demand"),
    ]
    run(["doctor", "--fluss", bootstrap, "--json"])
    found = {(f["about"], f["check"]) for f in told()["findings"]}
    assert (f"{DATABASE}.seen_rows", "supported") in found
    assert not {(log, "freshness"), (pk, "freshness"), (pk, "lake")} & found
    show_next_round(bootstrap, None, log, as_json=True)
    assert [(s["start"], s["stop"]) for s in told()["next_round"]] == [(10, 17)]
    show_jobs(bootstrap, None, as_json=True)
    assert {log, pk} <= set(next(j["tables"] for j in told() if j["name"] == "on-demand"))
