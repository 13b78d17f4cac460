# SPDX-License-Identifier: Apache-2.0
"""A table in two lakes on its pages: how each side stands, rounds that shared a read; a table that is adopted, while
its rows are loaded.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import expect
from pyiceberg.catalog.rest import RestCatalog

from lakeward.protocol import routes
from lakeward.protocol.codec import encode
from lakeward.protocol.operate import AdoptTable
from lakeward_testing.waiting import wait_until
from tests.browser.conftest import LIMIT_MS, QUICK, OpenPage
from tests.kit.serverprocess import ServerProcess
from tests.spark.processes import Job, Server

pytestmark = [pytest.mark.browser, pytest.mark.soak]
expect.set_options(timeout=LIMIT_MS)

LAKES = {"datalake.format": "iceberg", "lakes.cold.format": "delta"}
BOTH = {"table.datalake.lakes": "default, cold"}


def test_each_side_of_a_table_has_a_row_and_a_page(open_page: OpenPage, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", settings=LAKES).start()
    try:
        client = server.client()
        client.create_table("d.both", "id bigint", properties=BOTH)
        client.create_table("d.one", "id bigint")
        client.server.ask("POST", "/api/v1/tables/d.both/pause", params={"side": "cold"})
        page = open_page(f"{server.url}/#/", quiet=False)  # it asks on while the server ends
        both = page.locator('tbody[data-table="d.both"]')
        expect(both).to_have_count(2)
        expect(page.locator("#count")).to_have_text("2 of 2 tables")
        expect(both.filter(has_text="cold")).to_contain_text("paused")
        expect(both.filter(has_not_text="cold")).to_contain_text("fresh")
        page.goto(f"{server.url}/#/table/d.both")
        rows = page.locator("#sidelist tbody tr")
        expect(rows).to_have_count(2)
        expect(rows.filter(has_text="cold")).to_contain_text("paused")
        page.get_by_role("link", name="cold", exact=True).click()
        expect(page.locator("#sidelist b")).to_have_text("cold")
        expect(page.locator("#status")).to_contain_text("paused")
        page.get_by_role("button", name="Resume").click()
        expect(page.locator("dialog")).to_contain_text("d.both in lake cold")
        page.locator("dialog").get_by_role("button", name="Resume").click()
        expect(page.locator("#status")).to_contain_text("fresh")
        page.get_by_role("button", name="Pause").click()
        page.locator("dialog").get_by_role("button", name="Pause").click()
        expect(rows.filter(has_text="cold")).to_contain_text("paused")
        expect(rows.filter(has_text="default")).to_contain_text("fresh")
        page.goto(f"{server.url}/#/table/d.one")
        expect(page.locator("#status")).to_contain_text("fresh")
        expect(page.locator("#sides")).to_be_hidden()
    finally:
        server.close()


def test_rounds_that_shared_a_read_say_with_whom(open_page: OpenPage, tmp_path: Path) -> None:
    server = Server(tmp_path, {**QUICK, **LAKES})
    job = Job(server, "sharer", spark=False)
    try:
        with server.connect() as client:
            table = client.create_table("d.both", "id bigint", freshness="1 h", properties=BOTH)
            alone = client.create_table("d.one", "id bigint", freshness="1 h")
            for number in range(2):
                for one in (table, alone):
                    one.append([{"id": number}])
                    client.tier_now(one.path, limit_s=120)
        page = open_page(f"{server.url}/#/rounds", quiet=False)
        rows = page.locator("#rounds tbody tr")
        expect(rows.filter(has_text="read with cold").first).to_contain_text("d.both")
        expect(rows.filter(has_text="read with default").first).to_contain_text("d.both")
        expect(rows.filter(has_text="d.one").first).not_to_contain_text("read with")
        page.goto(f"{server.url}/#/table/d.both?side=cold")
        expect(rows.first).to_contain_text("read with default")
    finally:
        job.kill()
        server.kill()


def test_a_table_that_is_adopted_shows_how_many_of_its_rows_are_loaded(open_page: OpenPage, tmp_path: Path) -> None:
    pause = tmp_path / "pause"
    faults = {"LAKEWARD_FAULTS": f"load.put=pause,hit=3,file={pause}"}
    server = ServerProcess(tmp_path / "data", settings={"datalake.format": "iceberg"}, environment=faults).start()
    try:
        make_table(server.url, files=4, rows=50)
        client = server.client()
        message = AdoptTable(foreign=True, primary_key=("id",))
        client.server.ask("POST", routes.ADOPT.format(table="theirs.orders"), encode(message), repeatable=False)
        wait_until(Path(f"{pause}.reached").exists, what="a load under way")
        page = open_page(f"{server.url}/#/", quiet=False)
        expect(page.locator("#adoptions")).to_contain_text("theirs.orders is being adopted: 150 of about 200 rows")
        page.get_by_role("link", name="theirs.orders").click()
        expect(page.locator("#loaded")).to_contain_text("150 of about 200 rows loaded (75 %), 2 of 4 files")
        expect(page.locator("#loaded progress")).to_have_attribute("value", "150")
        expect(page.locator("#status")).to_be_hidden()
        Path(f"{pause}.release").touch()
        expect(page.locator("#adopting")).to_be_hidden()
        expect(page.locator("#status")).to_contain_text("State")
        expect(page.locator("#schema")).to_contain_text("id")
    finally:
        server.close()


def make_table(url: str, files: int, rows: int) -> None:
    catalog = RestCatalog("theirs", uri=f"{url}/iceberg")
    catalog.create_namespace_if_not_exists("theirs")
    table = catalog.create_table("theirs.orders", pa.schema([("id", pa.int64())]))
    for at in range(files):
        table.append(pa.table({"id": pa.array(range(at * rows, (at + 1) * rows), pa.int64())}))
    catalog.close()
