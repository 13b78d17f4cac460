# SPDX-License-Identifier: Apache-2.0
"""The page of a Fluss cluster: what was seen of it in the server's words, and doors that refuse what a server's do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from lakeward.errors import TableNotFound
from lakeward.hot.fluss.clusterview import BEHIND, CURRENT, LATE, REFUSED, UNREADABLE, CommitView, TableLook, TableView
from lakeward.hot.fluss.tiernow import InLake
from lakeward.model import (
    DEFAULT_SIDE,
    NO_EPOCH,
    Column,
    InstanceId,
    Int32Type,
    JobName,
    RoundPhases,
    Schema,
    SideId,
    SideName,
    TableDescriptor,
    TableId,
    TableInfo,
    TablePath,
    TableState,
    WorkKind,
)
from lakeward.model.side import COMPACT
from lakeward.protocol import routes
from lakeward.protocol.auth import TokenSet
from lakeward.protocol.operate import CoordinatorStatus, LedgerAnswer
from lakeward.protocol.views import JobStatus, LagExplanation, RoundStatus, TableStatus, WorkStatus
from lakeward.server.admission.callers import Callers
from lakeward.server.app import PAGE_MODULES, create_app
from lakeward.server.cluster.console import ConsoleServices, tiering_router
from lakeward.server.cluster.shown import explain_lag, show_commit, show_jobs, show_table, table_figures
from lakeward.server.feed.pagesource import Figures, PageSource, WorkFigures
from lakeward.spi import LakeTotals
from lakeward_testing.clock import ManualClock

PATH = TablePath("db", "t")
SCHEMA = Schema(columns=(Column(name="id", type=Int32Type(nullable=False)),))
TABLE = TableInfo(path=PATH, table_id=TableId("7"), descriptor=TableDescriptor(schema=SCHEMA))
VIEW = TableView(
    path=str(PATH),
    state=BEHIND,
    freshness_ms=10_000,
    waiting=7,
    lag_ms=4_000,
    last_commit_at_ms=90_000,
    job="mine",
    totals=LakeTotals(data_files=3, delete_files=1, rows=50, bytes=900, snapshots=2),
)
DEBT = WorkStatus(kind=COMPACT, epoch=NO_EPOCH, debt_files=2)
LOOK = TableLook(table=TABLE, view=VIEW)
ROUND = replace(
    show_commit(
        CommitView(
            path=str(PATH),
            kind="tier",
            committed_at_ms=90_000,
            job="mine",
            rows=5,
            deletes=0,
            bytes_written=9,
            snapshot_id="1",
        )
    ),
    phases=RoundPhases(plan_s=0.5, write_s=1.5),
)


def seen(**changes: Any) -> TableLook:
    return replace(LOOK, view=replace(VIEW, **changes))


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        (CURRENT, TableState.SCHEDULED),
        (BEHIND, TableState.SCHEDULED),
        (LATE, TableState.PENDING),
        (REFUSED, TableState.DISABLED),
        (UNREADABLE, TableState.FAILED),
    ],
)
def test_a_table_is_shown_as_a_server_would(state: str, shown: TableState) -> None:
    assert show_table(seen(state=state), 0, None).state is shown


def test_what_waits_grows_older_between_two_looks_and_what_does_not_wait_does_not() -> None:
    assert show_table(LOOK, 3_000, DEBT).lag_ms == 7_000
    assert show_table(seen(waiting=0, lag_ms=0), 3_000, DEBT).lag_ms == 0
    assert show_table(LOOK, 0, DEBT).debt_files == 2


def test_rounds_of_the_own_job_tell_how_long_they_took_and_that_they_fail() -> None:
    failed = replace(ROUND, outcome="failed", error={"message": "no room"})
    shown = show_table(LOOK, 0, None, [failed, failed, ROUND])
    assert (shown.state, shown.failures, shown.failures_in_a_row) == (TableState.FAILED, 2, 2)
    assert (shown.reason, shown.last_duration_ms) == ("no room", 2_000)
    assert show_table(LOOK, 0, None, [ROUND, failed]).failures_in_a_row == 0


def test_a_job_whose_tables_are_all_late_counts_as_gone() -> None:
    own = JobStatus(name=JobName("own"), instance=InstanceId(""), pool="", slots=4, live=True, last_beat_at_ms=1)
    tables = [seen(job="flink", state=LATE), seen(job="flink"), seen(job="dead", state=LATE), seen(job="own")]
    jobs = show_jobs([*tables, seen(job=None)], [own])
    assert [(j.name, j.live, j.slots) for j in jobs] == [("own", True, 4), ("dead", False, None), ("flink", True, None)]


@pytest.mark.parametrize(
    ("look", "in_work", "words"),
    [
        (seen(waiting=0, lag_ms=0), False, "nothing waits"),
        (LOOK, False, "once its freshness of 10 s is over"),
        (LOOK, True, "a round of this job runs"),
        (seen(lag_ms=12_000), False, "with 10 s allowed"),
        (seen(reason="a hadoop catalog"), False, "a hadoop catalog"),
    ],
)
def test_the_lag_is_explained(look: TableLook, in_work: bool, words: str) -> None:
    explained = explain_lag(look, show_table(look, 0, None), in_work)
    assert words in explained.words
    assert sum(explained.parts_ms.values()) == explained.lag_ms


class OneTable(PageSource):
    """A source that has seen one table."""

    def status(self) -> CoordinatorStatus:
        return CoordinatorStatus(coordinator_epoch=0, now_ms=100_000, tables=(show_table(LOOK, 0, DEBT),))

    def table_status(self, path: TablePath, side: SideName | None = None) -> TableStatus:
        if path != PATH:
            raise TableNotFound(table=str(path))
        return show_table(LOOK, 0, DEBT)

    def explain(self, path: TablePath, side: SideName | None = None) -> LagExplanation:
        return explain_lag(LOOK, self.table_status(path), False)

    def rounds(
        self, path: TablePath | None, limit: int, side: SideName | None, kind: WorkKind | None
    ) -> Sequence[RoundStatus]:
        return [ROUND]

    def jobs(self) -> Sequence[JobStatus]:
        return show_jobs([LOOK], ())

    def ledger(self, path: TablePath, limit: int, before: int | None, side: SideName | None) -> LedgerAnswer:
        return LedgerAnswer(path=path, generation=0, committed=LOOK.committed)

    def load_table(self, path: TablePath) -> TableInfo:
        return TABLE

    def lake_files(self, path: TablePath, side: SideName | None) -> dict[str, Any]:
        return {}

    def side_figures(self) -> Figures:
        return {SideId(TABLE.table_id, DEFAULT_SIDE): table_figures(show_table(LOOK, 0, DEBT), 100_000)}

    def work_figures(self) -> WorkFigures:
        return {}


def ask(path: str, method: str = "GET", **headers: str) -> httpx.Response:
    callers = Callers.of((), (), has_tokens=False)
    services = ConsoleServices(facts=OneTable(), tokens=TokenSet.parse([]), clock=ManualClock(), callers=callers)
    return ask_of(create_app(services, PAGE_MODULES), path, method, **headers)


def ask_of(app: FastAPI, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=app)

    async def call() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, headers={"Content-Type": "application/json", **headers})

    return asyncio.run(call())


def test_the_servers_pages_and_metrics_are_those_of_a_cluster_too() -> None:
    overview = ask(routes.DASHBOARD).json()
    assert [t["key"] for t in overview["tiles"]] == ["rounds", "queue", "remote-log", "files", "jobs"]
    assert (overview["tables"][0]["path"], overview["actions"]) == (str(PATH), [])
    assert (overview["tiles"][2]["figure"], overview["tiles"][3]["figure"]) == ("Fluss's own", "4 →, 2 to merge →")
    figures = ask(routes.METRICS).text
    assert (
        f'lakeward_lag{{database="{PATH.database}",side="default",table="{PATH.table}",tableId="7"}} 4000.0' in figures
    )
    for route in (routes.TABLE, routes.TABLE_STATUS, routes.EXPLAIN, routes.LEDGER, routes.MAINTAIN, routes.LAG):
        assert ask(route.format(table=PATH)).status_code == 200
    assert ask("/").text == ask("/web/index.html").text != ""


def test_a_page_beside_a_job_brings_a_table_into_the_lake_when_asked() -> None:
    asked: list[tuple[TablePath, float]] = []

    def bring(path: TablePath, limit_s: float) -> InLake:
        asked.append((path, limit_s))
        return InLake(path=path, committed=LOOK.committed, took_ms=400)

    services = ConsoleServices(facts=OneTable(), tokens=TokenSet.parse([]), clock=ManualClock())
    app = create_app(services, PAGE_MODULES)
    app.include_router(tiering_router(services, bring))
    route = routes.TIER_NOW.format(table=PATH)
    assert ask_of(app, f"{route}?limit_s=5", "POST").json()["took_ms"] == 400
    assert ask_of(app, f"{route}?limit_s=500", "POST").status_code == 400
    assert asked == [(PATH, 5.0)]


def test_what_a_cluster_has_no_hand_for_is_not_there_and_strangers_are_refused() -> None:
    for route in (routes.PAUSE, routes.RESUME, routes.RESYNC, routes.TIER_NOW):
        assert ask(route.format(table=PATH), "POST").status_code == 404
    assert ask(routes.MAINTAIN.format(table=PATH), "POST").status_code == 405
    assert ask(routes.DASHBOARD, Host="evil.example").json()["code"] == "foreign-caller"
    assert ask(routes.DASHBOARD, Origin="http://evil.example").json()["code"] == "foreign-caller"
