# SPDX-License-Identifier: Apache-2.0
"""The pages to work on, in a real browser before a real server and job: every button, what it asks and what it does;
and every page, light and dark, before axe.
"""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import LIMIT_MS, OpenPage
from tests.kit.iceberg.engines import duckdb_connection
from tests.spark.processes import Job, Server, tier_now

pytestmark = pytest.mark.browser
expect.set_options(timeout=LIMIT_MS)
EVIL = "<img src=x onerror=\"document.title='taken'\">"
PAGES = ("#/", "#/table/work.orders", "#/rounds", "#/jobs", "#/sql", "#/maintenance", "#/cost", "#/log", "#/new")


def agree(page: Page, words: str) -> None:
    expect(page.locator("#ask-text")).to_contain_text(words)
    page.locator("#ask-yes").click()
    expect(page.locator("#ask")).to_be_hidden()


def check_live_lines(page: Page) -> None:
    """The lines to copy are run as they stand, but for the install that would download DuckDB's extension."""
    lines, figures = page.locator("#lines"), page.locator("#livefigures")
    expect(figures).to_contain_text("none since the server started")
    with duckdb_connection() as engine:
        _, *statements = lines.inner_text().splitlines()
        for statement in statements:
            answer = engine.execute(statement)
        assert answer.fetchone() == (4,)
    expect(figures).to_contain_text(re.compile(r"Its tail\s*2 rows"))
    expect(figures).to_contain_text("a second")
    page.locator("#engine").select_option("PyIceberg")
    with redirect_stdout(StringIO()) as printed:
        exec(lines.inner_text(), {})
    assert "newer" in printed.getvalue()


def test_a_table_is_made_looked_into_and_worked_on(server: Server, job: Job, open_page: OpenPage) -> None:
    page = open_page(server.url)
    page.get_by_role("link", name="New table").click()
    page.get_by_label("Name").fill("work.orders")
    page.get_by_label("Columns").fill("id bigint, note string")
    page.get_by_label("Primary key").fill("id")
    page.get_by_label("Freshness").fill("1 h")
    page.get_by_role("button", name="Create").click()
    agree(page, "Every table would keep its freshness")
    expect(page.locator("h1")).to_have_text("work.orders")
    expect(page.locator("#sample")).to_contain_text("No rows there")
    with server.connect() as client:
        orders = client.table("work.orders")
        orders.upsert([{"id": 1, "note": EVIL}, {"id": 2, "note": None}])
        tier_now(client, orders)
        orders.upsert([{"id": 3, "note": "new"}])
        rows = page.locator("#sample tbody tr")
        page.get_by_role("button", name="Read again").click()
        expect(rows).to_have_count(3)
        expect(page.locator("#sample")).to_contain_text(EVIL)
        expect(page.locator("#sample")).to_contain_text("NULL")
        page.locator("#mode").select_option("lake")
        expect(rows).to_have_count(2)
        page.locator("#mode").select_option("hot")
        expect(rows).to_have_count(3)
        assert next(orders.subscribe(idle_s=30)).num_rows
        expect(page.locator("#consumers tbody tr")).to_have_count(1)
        expect(page.locator("#hot")).to_contain_text("Local log")
        orders.upsert([{"id": 4, "note": "newer"}])
    check_live_lines(page)
    expect(page.locator("#properties")).to_contain_text(re.compile(r"table\.datalake\.freshness\s*1 h\s*table"))
    expect(page.locator("#properties")).to_contain_text(re.compile(r"table\.log\.ttl.*default", re.DOTALL))
    page.locator("#snapshots a").first.click()
    expect(page.locator("main")).to_contain_text("as of snapshot")
    expect(page.locator("#sample tbody tr")).to_have_count(2)
    page.get_by_role("link", name="now").click()
    expect(page.locator("#files")).to_contain_text("below 1 MB")
    page.get_by_role("button", name="Compact now").click()
    agree(page, "Compact the lake files of work.orders now?")
    page.get_by_role("button", name="Resync").click()
    agree(page, "rows that only the lake has")
    page.get_by_role("button", name="Pause").click()
    agree(page, "Pause work.orders?")
    expect(page.locator("#status")).to_contain_text("paused")
    page.get_by_role("button", name="Resume").click()
    agree(page, "Resume work.orders?")
    expect(page.locator("#status")).not_to_contain_text("paused")
    page.get_by_role("button", name="Tier now").click()
    agree(page, "Bring every row of work.orders into the lake now?")
    expect(page.locator("#status")).to_contain_text("In the lake4 rows")
    assert page.title() == "Lakeward", "a row's text ran as part of the page"


def test_a_query_reads_tables_and_nothing_else(server: Server, open_page: OpenPage) -> None:
    page = open_page(f"{server.url}/#/table/work.orders", quiet=False)  # a refused query is an HTTP error on purpose
    page.get_by_role("link", name="Query it").click()
    expect(page.get_by_label("Query")).to_have_value("SELECT * FROM work.orders LIMIT 20")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#answer tbody tr")).to_have_count(4)
    expect(page.locator("#answer")).to_contain_text(EVIL)
    page.get_by_label("Query").fill("SELECT count(*) AS files FROM read_text('/etc/passwd')")
    page.get_by_label("Query").press("Control+Enter")
    expect(page.locator("#answer [role=alert]")).to_contain_text("no files")
    page.get_by_label("Query").fill("DROP TABLE work.orders")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#answer [role=alert]")).to_contain_text("only SELECT can be run here")
    assert page.title() == "Lakeward"


def test_a_statement_changes_columns_and_shows_its_plan(server: Server, open_page: OpenPage) -> None:
    page = open_page(f"{server.url}/#/sql", quiet=False)  # a refused statement is an HTTP error on purpose
    query, answer = page.get_by_label("Query"), page.locator("#answer")
    query.fill("EXPLAIN ALTER TABLE work.orders RENAME COLUMN note TO remark, ADD COLUMN weight DOUBLE AFTER id")
    page.get_by_role("button", name="Run").click()
    expect(answer.locator("tbody tr").first).to_contain_text("lake default: ")
    expect(answer.locator("tbody tr").last).to_have_text("nothing was changed; work.orders would have schema 2")
    query.fill("ALTER TABLE work.orders RENAME COLUMN note TO remark, ADD COLUMN weight DOUBLE AFTER id")
    page.get_by_role("button", name="Run").click()
    expect(answer.locator("tbody tr").last).to_have_text("altered work.orders: schema 2")
    query.fill("SELECT remark, weight FROM work.orders ORDER BY id")
    page.get_by_role("button", name="Run").click()
    expect(answer).to_contain_text(EVIL)
    query.fill("ALTER TABLE work.orders ADD COLUMN state STRING DEFAULT 'new'")
    page.get_by_role("button", name="Run").click()
    expect(answer.locator("[role=alert]")).to_contain_text("iceberg.format-version=3")
    query.fill("ALTER TABLE work.orders RENAME COLUMN remark TO note, DROP COLUMN weight")
    page.get_by_role("button", name="Run").click()
    expect(answer.locator("tbody tr").last).to_have_text("altered work.orders: schema 3")


def test_jobs_debt_cost_and_log_are_shown(server: Server, job: Job, open_page: OpenPage) -> None:
    page = open_page(f"{server.url}/#/jobs")
    expect(page.locator("#jobs tbody tr").first).to_contain_text(re.compile(r"painter.*live.*MB", re.DOTALL))
    page.get_by_role("link", name="Maintenance").click()
    row = page.locator('#debt tr[data-table="work.orders"]')
    expect(row).to_contain_text("work.orders")
    row.get_by_role("button", name="Compact now").click()
    agree(page, "Compact the lake files of work.orders now?")
    page.get_by_role("link", name="Cost").click()
    expect(page.locator("#cost tbody tr", has_text="work.orders").first).to_contain_text(
        re.compile(r"work\.orders\s*[\d.]+ s\s*\d.* [k]?B", re.DOTALL)
    )
    page.get_by_role("link", name="Log", exact=True).click()
    expect(page.locator("#lines")).to_contain_text("this process may open")
    page.get_by_label("Level").select_option("error")
    expect(page.locator("#lines")).not_to_contain_text("this process may open")


def axe() -> str:
    """The program itself; the package around it is not needed."""
    spec = find_spec("axe_playwright_python")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "axe.min.js").read_text()


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.soak)])
def test_axe_finds_nothing(server: Server, browser: Browser, theme: Literal["light", "dark"]) -> None:
    context = browser.new_context(bypass_csp=True, color_scheme=theme)
    page = context.new_page()
    for address in PAGES:
        page.goto(f"{server.url}/{address}")
        expect(page.locator("#contact")).to_have_class(re.compile("live"), timeout=LIMIT_MS)
        expect(page.locator("h1")).to_have_count(1)
        expect(page.get_by_text("Loading", exact=True)).to_have_count(0)
        page.evaluate(axe())
        found = page.evaluate("axe.run()")["violations"]
        assert [(v["id"], v["nodes"][0]["html"]) for v in found] == [], f"{address}, {theme}"
    context.close()
