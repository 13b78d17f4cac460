# SPDX-License-Identifier: Apache-2.0
"""A table in two lakes on its page: how each side stands, and a page for each."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from lakeward.testing.serverprocess import ServerProcess
from tests.browser.conftest import LIMIT_MS, OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.soak]
expect.set_options(timeout=LIMIT_MS)


def test_each_side_of_a_table_has_a_row_and_a_page(open_page: OpenPage, tmp_path: Path) -> None:
    settings = {"datalake.format": "iceberg", "lakes.cold.format": "delta"}
    server = ServerProcess(tmp_path / "data", settings=settings).start()
    try:
        client = server.client()
        client.create_table("d.both", "id bigint", properties={"table.datalake.lakes": "default, cold"})
        client.create_table("d.one", "id bigint")
        client.server.ask("POST", "/api/v1/tables/d.both/pause", params={"side": "cold"})
        page = open_page(f"{server.url}/#/table/d.both", quiet=False)  # it asks on while the server ends
        rows = page.locator("#sidelist tbody tr")
        expect(rows).to_have_count(2)
        expect(rows.filter(has_text="cold")).to_contain_text("paused")
        page.get_by_role("link", name="cold", exact=True).click()
        expect(page.locator("#sidelist b")).to_have_text("cold")
        expect(page.locator("#status")).to_contain_text("paused")
        expect(page.get_by_role("button", name="Resume")).to_be_visible()
        page.goto(f"{server.url}/#/table/d.one")
        expect(page.locator("#status")).to_contain_text("scheduled")
        expect(page.locator("#sides")).to_be_hidden()
    finally:
        server.close()
