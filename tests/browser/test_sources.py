# SPDX-License-Identifier: Apache-2.0
"""Sources on the page, in a real browser: the tile and the list, with one that is behind and one that stopped."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from lakeward.client import Client
from lakeward.protocol import routes
from lakeward.protocol.sources import SourceBeat, SourceLag
from lakeward.source.ingest import SourceDoor
from tests.browser.conftest import LIMIT_MS, OpenPage
from tests.spark.processes import Server

pytestmark = pytest.mark.browser
expect.set_options(timeout=LIMIT_MS)
EVIL = "<img src=x onerror=\"document.title='taken'\">"


def open_source(client: Client, name: str) -> SourceDoor:
    client.server.ask("POST", routes.SOURCES, {"name": name, "kind": "toy", "config": {"to": "shop"}})
    door = SourceDoor(client, name)
    door.open()
    return door


def test_a_source_that_is_behind_and_one_that_stopped(server: Server, open_page: OpenPage) -> None:
    page = open_page(server.url)
    tile = page.locator(".tile", has_text="ource").first
    with server.connect() as client:
        late, broken = open_source(client, "late"), open_source(client, "broken")
        lag = SourceLag(messages=1_200, seconds=42.5, slot_bytes=3 << 20)
        late.beat(SourceBeat(epoch=late.epoch, phase="streaming", position="0/1A2B", lag=lag))
        broken.beat(SourceBeat(epoch=broken.epoch, phase="streaming", position="7 in 1 topics"))
        expect(tile).to_contain_text("Source lag, worst source")
        expect(tile).to_contain_text("42.5 s")
        expect(tile).to_contain_text("slot keeps 3.0 MiB")
        error = f"source broken stops at topic orders, partition 0, offset 7: {EVIL}"
        broken.beat(SourceBeat(epoch=broken.epoch, phase="stopped", error=error))
        expect(tile).to_contain_text("Sources that do not run")
        expect(tile).to_contain_text("Source broken is stopped: source broken stops at topic orders")
        tile.get_by_role("link", name="Show").click()
        rows = page.locator("#jobs tbody tr")
        late_row = rows.filter(has_text="late")
        expect(late_row).to_contain_text("streaming")
        expect(late_row).to_contain_text("0/1A2B")
        expect(late_row).to_contain_text("42.5 s")
        expect(late_row).to_contain_text("slot keeps")
        expect(rows.filter(has_text="offset 7")).to_contain_text(EVIL)
        expect(rows.filter(has_text="broken").first).to_have_class("sick")
        client.server.ask("POST", routes.SOURCE_PAUSE.format(source="broken"))
        expect(rows.filter(has_text="broken").first).to_contain_text("paused")
        for name in ("late", "broken"):
            client.server.ask("DELETE", routes.SOURCE.format(source=name))
        expect(page.locator("#jobs")).not_to_contain_text("Sources")
    assert page.title() != "taken"
