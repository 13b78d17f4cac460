# SPDX-License-Identifier: Apache-2.0
"""The dashboard in a real browser, before a real server and job: what it shows, and how it turns red and back."""

from __future__ import annotations

import json
import re
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from lakeward.client import Table
from lakeward.model import Bucket
from lakeward_testing.waiting import wait_until
from tests.browser.conftest import LIMIT_MS, QUICK, OpenPage
from tests.kit.iceberg.server import serving
from tests.kit.serverprocess import ServerProcess
from tests.spark.processes import Job, Server, tier_now

pytestmark = pytest.mark.browser
expect.set_options(timeout=LIMIT_MS)
RED = re.compile(r"\bbad\b")
GREEN = re.compile(r"^tile\s*$")


def tile(page: Page, key: str) -> Locator:
    return page.locator(f'[data-tile="{key}"]')


def row(page: Page, table: str) -> Locator:
    return page.locator(f'tbody[data-table="{table}"]')


def test_what_an_operator_sees(server: Server, job: Job, open_page: OpenPage) -> None:
    with server.connect() as client:
        orders = client.create_table(
            "shop.orders", "id bigint not null, total int", primary_key="id", buckets=2, freshness="20 s"
        )
        orders.upsert([{"id": n, "total": n} for n in range(100)])
        client.create_table("shop.visits", "at bigint", freshness="1 h")
        tier_now(client, orders)
        snapshot = client.read("shop.orders", mode="lake").bound.snapshot_id
    page = open_page(server.url)
    expect(page.locator(".tile")).to_have_count(5)
    for key in ("rounds", "queue", "remote-log", "files", "jobs"):
        expect(tile(page, key)).to_have_class(GREEN)
    expect(tile(page, "jobs")).to_contain_text("1 / 1")
    expect(row(page, "shop.orders")).to_contain_text("20 s")
    expect(page.locator("#count")).to_have_text("2 of 2 tables")
    page.fill("#find", "visit")
    expect(page.locator("#count")).to_have_text("1 of 2 tables")
    expect(row(page, "shop.orders")).to_have_count(0)
    page.fill("#find", "")
    page.get_by_role("button", name="Freshness").click()
    expect(page.locator("tbody[data-table]").first).to_contain_text("shop.orders")
    page.get_by_role("button", name="Freshness").click()
    expect(page.locator("tbody[data-table]").first).to_contain_text("shop.visits")
    expect(page.locator("th[aria-sort=descending]")).to_have_text(re.compile("Freshness"))
    page.fill("#find", "order")
    page.reload()
    expect(page.locator("#find")).to_have_value("order")
    expect(page.locator("th[aria-sort=descending]")).to_have_text(re.compile("Freshness"))
    expect(page.locator("h1")).to_have_count(1)
    expect(page.locator("#count")).to_have_text("1 of 2 tables")
    page.locator("#find").press("Enter")
    expect(page.locator("#words")).to_contain_text("nothing waits")
    expect(page.locator("#rounds .phases span.commit").first).to_be_visible()
    empty = (
        "bar => bar.clientWidth - [...bar.children].reduce((sum, part) => sum + part.getBoundingClientRect().width, 0)"
    )
    assert page.locator("#rounds .phases").first.evaluate(empty) < 2, (
        "phases fill their bar, however short the round was"
    )
    expect(page.locator("#offsets tbody tr")).to_have_count(2)
    expect(page.locator("#snapshots")).to_contain_text(str(snapshot))
    expect(page.locator("#properties")).to_contain_text("table.datalake.freshness")
    expect(page.locator("#schema")).to_contain_text("1 id BIGINT NOT NULL")
    with server.connect() as client:
        client.table("shop.visits").append([{"at": 1}])
    page.goto(f"{server.url}/#/table/shop.visits")
    expect(page.locator("#status")).to_contain_text("Waiting rows1")
    page.get_by_role("button", name="Tier now").click()
    expect(page.locator("#ask-text")).to_contain_text("Bring every row of shop.visits into the lake now?")
    page.locator("#ask-yes").click()
    expect(page.locator("#status")).to_contain_text("In the lake1 row, ")
    page.get_by_role("button", name="Freshness").click()
    page.fill("#ask-input", "soon")
    page.locator("#ask-yes").click()
    expect(page.locator("#ask-text")).to_contain_text("soon is no time")
    page.locator("#ask-yes").click()
    page.get_by_role("button", name="Freshness").click()
    page.fill("#ask-input", "2 h")
    page.locator("#ask-yes").click()
    expect(page.locator("#ask-text")).to_contain_text(
        re.compile("Every table would keep .*Set 2 h for shop.visits", re.DOTALL)
    )
    page.locator("#ask-yes").click()
    expect(page.locator("#properties")).to_contain_text(re.compile("table.datalake.freshness\\s*2 h"))
    expect(page.locator("h1")).to_have_count(1)
    page.get_by_role("link", name="Jobs", exact=True).click()
    expect(page.locator("#jobs tbody tr")).to_contain_text(re.compile("painter.*live", re.DOTALL))
    page.get_by_role("link", name="Rounds", exact=True).click()
    expect(page.locator("#rounds tbody tr").first).to_contain_text("shop.visits")
    expect(page.locator("#rounds tbody td").first).to_have_text(re.compile(r"^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d$"))
    page.get_by_role("link", name="SQL", exact=True).click()
    expect(page.locator("#query")).to_have_value(re.compile(r"^SELECT \* FROM shop\.\w+ LIMIT 20$"))
    page.locator("#names summary", has_text="shop.orders").click()
    expect(page.locator("#names details[open]")).to_contain_text("total INT")
    page.locator("#run").click()
    expect(page.locator("#answer tbody tr").first).to_be_visible()


@pytest.mark.parametrize("width", [390, 820, 1600])
def test_no_page_is_wider_than_its_window(server: Server, open_page: OpenPage, width: int) -> None:
    page = open_page(server.url, width=width)
    for address in (
        "#/",
        "#/table/shop.orders",
        "#/rounds",
        "#/jobs",
        "#/sql",
        "#/maintenance",
        "#/cost",
        "#/log",
        "#/new",
    ):
        page.goto(f"{server.url}/{address}")
        expect(page.locator("#contact")).to_have_class(re.compile("live"))
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_table_that_fails_stands_out_and_is_resumed_on_purpose(server: Server, job: Job, open_page: OpenPage) -> None:
    with server.connect() as client:
        gone = client.create_table("shop.gone", "id bigint", freshness="1 s")
        client.server.ask("DELETE", "/iceberg/v1/namespaces/shop/tables/gone")
        page = open_page(server.url)
        gone.append([{"id": 1}])
        expect(row(page, "shop.gone").locator(".state")).to_have_text("quarantined")
        expect(tile(page, "rounds")).to_have_class(RED)
        expect(tile(page, "rounds").locator(".advice")).to_contain_text("shop.gone")
        expect(row(page, "shop.gone").locator(".reason")).to_contain_text("shop.gone")
        failures = status(client, "shop.gone")["failures"]
        row(page, "shop.gone").get_by_role("button", name="Resume").click()
        expect(page.locator("#ask-text")).to_contain_text("Resume shop.gone?")
        page.get_by_role("button", name="Cancel").click()
        assert status(client, "shop.gone")["state"] == "quarantined"
        row(page, "shop.gone").get_by_role("button", name="Resume").click()
        page.locator("#ask-yes").click()
        page.wait_for_function(
            "n => fetch('/api/v1/tables/shop.gone/status').then(a => a.json()).then(t => t.failures > n)", arg=failures
        )
        client.drop_table("shop.gone")
        expect(row(page, "shop.gone")).to_have_count(0)
        expect(tile(page, "rounds")).to_have_class(GREEN)


def status(client: Any, table: str) -> dict[str, Any]:
    found: dict[str, Any] = client.server.ask("GET", f"/api/v1/tables/{table}/status")
    return found


def test_a_killed_job_turns_its_tile_red(server: Server, job: Job, open_page: OpenPage) -> None:
    page = open_page(server.url)
    expect(tile(page, "jobs")).to_have_class(GREEN)
    job.kill()
    expect(tile(page, "jobs")).to_have_class(RED)
    expect(tile(page, "jobs").locator(".advice")).to_contain_text("lakeward tier")
    page.goto(f"{server.url}/#/jobs")
    expect(page.locator("#jobs tbody tr")).to_contain_text("silent")


def test_a_server_that_is_gone_is_never_shown_as_live(server: Server, open_page: OpenPage) -> None:
    page = open_page(server.url, quiet=False)
    expect(page.locator("#contact")).to_have_class(re.compile("live"))
    server.kill()
    expect(page.locator("#lost")).to_be_visible()
    expect(page.locator("#lost")).to_contain_text(re.compile(r"What you see is .* old"))
    expect(page.locator("body")).to_have_class(re.compile("stale"))
    expect(page.locator("#contact-text")).to_have_text("no contact")
    server.start()
    expect(page.locator("#lost")).to_be_hidden()
    expect(page.locator("body")).not_to_have_class(re.compile("stale"))


@pytest.mark.soak
def test_a_lake_that_does_not_answer_turns_a_tile_red(open_page: OpenPage, tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
    with ExitStack() as stack, serving(catalog) as url:
        lake = {"datalake.iceberg.type": "rest", "datalake.iceberg.uri": url, "datalake.iceberg.request-timeout-s": "2"}
        server = Server(tmp_path, {**QUICK, **lake, "coordinator.maintenance.interval": "1 s"})
        stack.callback(server.kill)
        stack.callback(Job(server, "west", spark=False).kill)
        client = stack.enter_context(server.connect())
        table = client.create_table("shop.orders", "id bigint", freshness="1 min")
        table.append([{"id": 1}])
        tier_now(client, table)
        page = open_page(server.url)
        expect(tile(page, "rounds")).to_have_class(GREEN)
        stack.push(lambda *_: look_without_the_lake(page, table))


def look_without_the_lake(page: Page, table: Table) -> None:
    """Runs once the catalog is gone, and before server and job are."""
    expect(tile(page, "rounds")).to_have_class(RED)
    expect(tile(page, "rounds").locator(".advice")).to_contain_text("The lake does not answer")
    table.append([{"id": 2}])
    assert table.bounds()[Bucket("", 0)].end == 2


def test_a_token_is_asked_for_once_and_again_when_it_is_wrong(open_page: OpenPage, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", settings={"server.tokens": "rea:read:eye"}).start()
    try:
        page = open_page(server.url, quiet=False)
        expect(page.locator("#ask-text")).to_contain_text("wants a token")
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("#lost")).to_contain_text("wants a token")
        page.get_by_role("button", name="Give a token").click()
        page.fill("#ask-input", "wrong")
        page.locator("#ask-yes").click()
        expect(page.locator("#ask-text")).to_contain_text("did not accept")
        page.fill("#ask-input", "eye")
        page.locator("#ask-yes").click()
        expect(page.locator("#contact")).to_have_class(re.compile("live"))
        expect(page.locator("#none")).to_contain_text("No tables yet")
    finally:
        server.close()


def test_a_thousand_tables_scroll(server: Server, open_page: OpenPage) -> None:
    sent: list[int] = []

    def answer(route: Route) -> None:
        body = route.fetch(url=route.request.url.split("?")[0] + "?since=").json()
        pattern = {**body["tables"][0], "state": "scheduled", "reason": None}
        many = [{**pattern, "path": f"many.t{n:04}", "lake_files": None if n < 500 else n} for n in range(1000)]
        changed = many if not sent else many[:1]
        sent.append(len(changed))
        route.fulfill(json={**body, "tables": changed, "whole": len(sent) == 1, "gone": []})

    def lags(route: Route) -> None:
        tables = [part.split("=")[1] for part in route.request.url.split("?")[1].split("&")]
        now_ms = time.time_ns() // 1_000_000
        route.fulfill(json={"lags": {t: [[now_ms - n * 10_000, n] for n in range(100, 5, -1)] for t in tables}})

    def prepare(page: Page) -> None:
        page.route("**/api/v1/dashboard?*", answer)
        page.route("**/api/v1/lags*", lags)

    page = open_page(server.url, route=prepare)
    expect(page.locator("#count")).to_have_text("1,000 of 1,000 tables")
    assert page.locator("tbody[data-table]").count() == 60
    expect(row(page, "many.t0000").locator("svg.spark")).to_be_visible()

    def shows_all() -> bool:
        page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
        page.wait_for_timeout(50)
        return page.locator("tbody[data-table]").count() == 1000

    wait_until(shows_all, what="a thousand rows")
    row(page, "many.t0999").scroll_into_view_if_needed()
    page.wait_for_function("() => true")
    assert sent[0] == 1000
    expect(page.locator("#count")).to_have_text("1,000 of 1,000 tables")  # after ticks that brought one table each
    expect(row(page, "many.t0999").locator("svg.spark")).to_be_visible()
    took = page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
    print(json.dumps({"tables": 1000, "dom_ready_ms": took}))
