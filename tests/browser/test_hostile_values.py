# SPDX-License-Identifier: Apache-2.0
"""Names, values, comments, errors and log lines that are HTML: no page makes elements or runs code of them, even where
the browser does not keep the page's content security policy."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from lakeward.client import Client
from lakeward.errors import LakewardError
from lakeward.protocol.routes import HEARTBEAT, PAUSE
from tests.browser.conftest import LIMIT_MS
from tests.spark.processes import Job, Server, tier_now

pytestmark = pytest.mark.browser
expect.set_options(timeout=LIMIT_MS)
IMAGE = "<img src=x class=evil onerror=\"window.taken='html'\">"
QUOTE = "\"'><svg class=evil onload=\"window.taken='quote'\">"
NAMES = (IMAGE, QUOTE)
HOSTILE = f"{IMAGE}{QUOTE}</script><script>window.taken='script'</script>"
TABLE, QUARANTINE = "evil.t", "evil.t__quarantine"
PAGES = ("", f"table/{TABLE}", f"table/{QUARANTINE}", "rounds", "jobs", "sql", "maintenance", "cost", "log", "new")


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(bypass_csp=True)
    yield context.new_page()
    context.close()


def fill(client: Client) -> None:
    columns = ", ".join(f"{quoted(name)} string comment '{name.replace(chr(39), '')}'" for name in NAMES)
    table = client.create_table(
        TABLE,
        f"day string not null, {columns}",
        partition_by="day",
        freshness="1 h",
        comment=HOSTILE,
        properties={"table.schema.contract": "quarantine"},
    )
    table.append([{"day": "mon", **dict.fromkeys(NAMES, HOSTILE)}])
    tier_now(client, table)
    table.append([{"day": "tue", **dict.fromkeys(NAMES, HOSTILE)}])


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def send(server: Server, client: Client) -> None:
    """What strangers and programs can put into reasons, jobs, consumers and the log; a refusal is an answer, too."""
    url = server.url
    bad = {"day": {"x": HOSTILE}, HOSTILE: HOSTILE}
    httpx.post(f"{url}/api/v1/tables/{TABLE}/rows", json=bad, headers={"Idempotency-Key": "evil"})
    for path in (f"/api/v1/tables/{quote(HOSTILE)}", f"/{quote(HOSTILE)}", f"/iceberg/v1/namespaces/{quote(IMAGE)}"):
        answer = httpx.get(url + path)
        assert answer.headers["content-type"].startswith("application/json"), path
    for job, pool in ((IMAGE, "default"), ("evil", QUOTE)):
        try:
            client.server.ask("POST", HEARTBEAT, {"job": job, "instance": HOSTILE, "slots": 1, "pool": pool})
        except LakewardError:
            continue
    with contextlib.suppress(LakewardError):
        client.server.ask("POST", PAUSE.format(table=TABLE), {"reason": HOSTILE})


def check_page(page: Page, where: str) -> None:
    assert page.locator(".evil").count() == 0, f"{where}: an element was made of text"
    assert page.evaluate("window.taken") is None, f"{where}: code of a value ran"


def test_no_page_takes_text_for_html(server: Server, job: Job, page: Page) -> None:
    with server.connect() as client:
        fill(client)
        send(server, client)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    hashes = [f"#/{name}" for name in PAGES]
    hashes += [
        f"#/table/{quote(HOSTILE)}",
        f"#/table/{TABLE}?side={quote(QUOTE)}",
        f"#/table/{TABLE}?as-of={quote(QUOTE)}",
    ]
    hashes += [f"#/sql?q={quote(HOSTILE)}", f"#/{quote(HOSTILE)}"]
    for where in hashes:
        page.goto(f"{server.url}/{where}")
        expect(page.locator("h1")).to_have_count(1)
        expect(page.get_by_text("Loading", exact=True)).to_have_count(0)
        if where == f"#/table/{TABLE}":
            for mode in ("hot", "lake"):
                page.locator("#mode").select_option(mode)
                expect(page.locator("#sample tbody tr")).to_have_count(1 if mode == "lake" else 2)
                expect(page.locator("#sample")).to_contain_text(IMAGE)
        check_page(page, where)


def test_an_answer_to_a_query_is_text(server: Server, job: Job, page: Page) -> None:
    page.goto(f"{server.url}/#/sql")
    for value, name in itertools.product(NAMES, NAMES):
        query = f"SELECT '{value.replace(chr(39), chr(39) * 2)}' AS \"{name.replace(chr(34), chr(34) * 2)}\""
        page.locator("textarea").fill(query)
        page.get_by_role("button", name="Run").click()
        expect(page.locator("#answer td")).to_have_text(value)
        check_page(page, query)
    page.locator("textarea").fill(f"SELECT {IMAGE}")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#answer")).to_contain_text("img")
    check_page(page, "an error")
    for summary in page.locator("#names summary").all():
        summary.click()
    check_page(page, "names of columns")
