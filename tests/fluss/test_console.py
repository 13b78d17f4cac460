# SPDX-License-Identifier: Apache-2.0
"""The dashboard of a cluster: what coordinator and lake know of its tables, rounds and jobs."""

from __future__ import annotations

import httpx
import pytest

from lakeward.cli.run.console import open_console
from lakeward.protocol import routes
from lakeward.protocol.heartbeat import TableFinished
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import DATABASE, EVENTS, Append, MakeTable, events
from tests.fluss.world import FlussWorld

pytestmark = [pytest.mark.fluss, pytest.mark.soak]


def test_the_page_of_a_cluster(world: FlussWorld, rounds: OnDemand) -> None:
    """A table with a round behind it and rows before it; another look sees the next round, and counts it."""
    name = f"{DATABASE}.paged"
    world.produce(
        MakeTable(name="paged", schema=EVENTS, buckets=1, freshness="1h"), Append(table="paged", rows=events(0, 10))
    )
    assert isinstance(rounds.run("paged"), TableFinished)
    world.produce(Append(table="paged", rows=events(10, 13)))
    page = open_console(world.plugin, 0)
    page.start()
    try:
        with httpx.Client(base_url=page.url, timeout=120) as client:
            seen = client.get(routes.DASHBOARD).json()
            table = next(t for t in seen["tables"] if t["path"] == name)
            assert (table["state"], table["waiting_rows"], table["lake_rows"]) == ("scheduled", 3, 10)
            assert (table["lake_files"], table["job"], table["lag_ms"] > 0) == (1, "on-demand", True)
            assert "on-demand" in {j["name"] for j in seen["jobs"]}
            (one,) = client.get(routes.ROUNDS, params={"table": name}).json()["rounds"]
            assert (one["rows"], one["files"], one["outcome"], one["kind"]) == (10, 1, "done", "tier")
            ledger = client.get(routes.LEDGER.format(table=name)).json()
            assert [e["range"] for e in ledger["entries"]] == [[0, 10]]
            assert "freshness of 3600 s" in client.get(routes.EXPLAIN.format(table=name)).json()["words"]
            assert client.get(routes.TABLE.format(table=name)).json()["table"]["path"] == name

            assert isinstance(rounds.run("paged"), TableFinished)
            page.source.look()
            table = client.get(routes.TABLE_STATUS.format(table=name)).json()
            assert (table["waiting_rows"], table["lag_ms"], table["lake_rows"]) == (0, 0, 13)
            figures = [line for line in client.get(routes.METRICS).text.splitlines() if 'table="paged"' in line]
            assert any(line.startswith("lakeward_rows_out_total{") and line.endswith(" 3.0") for line in figures)
            assert any(line.startswith("lakeward_record_count{") and line.endswith(" 13.0") for line in figures)
    finally:
        page.stop()
