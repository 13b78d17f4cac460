# SPDX-License-Identifier: Apache-2.0
"""Compaction on the pages: what it would do, what it did, and that its rounds are told from others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from playwright.sync_api import expect

from lakeward.client import Client
from lakeward.model import JobName, RoundResult, new_instance_id, new_round_id
from lakeward.model.side import COMPACT
from lakeward.protocol import routes
from lakeward.protocol.heartbeat import HeartbeatRequest, TableFinished
from tests.browser.conftest import LIMIT_MS, OpenPage
from tests.spark.processes import Job, Server, tier_now

pytestmark = [pytest.mark.browser, pytest.mark.soak]
expect.set_options(timeout=LIMIT_MS)
ROUNDS = 8


def test_files_by_size_and_age_and_a_compaction_by_hand(server: Server, job: Job, open_page: OpenPage) -> None:
    with server.connect() as client:
        kept = client.create_table("shop.kept", "id bigint, name string", buckets=1, freshness="1 h")
        for number in range(ROUNDS):
            kept.append([{"id": 4 * number + n, "name": "n"} for n in range(4)])
            tier_now(client, kept)
    page = open_page(f"{server.url}/#/table/shop.kept")
    expect(page.locator("#status")).to_contain_text(f"{ROUNDS} files")
    by_size, by_age = page.locator("#files table").first, page.locator("#files table").last
    for shape in (by_size, by_age):
        expect(shape.locator("th")).to_contain_text(["By", "Now", "After a compaction"])
        expect(shape.locator("td.num").first).to_have_text(str(ROUNDS))
        expect(shape.locator("tbody tr").first.locator("td.num").last).to_have_text("1")
    page.get_by_role("button", name="Compact now").click()
    expect(page.locator("#ask-text")).to_contain_text("Compact the lake files of shop.kept now?")
    page.locator("#ask-yes").click()
    expect(page.locator("#status")).to_contain_text(" 1 file, ")
    page.goto(f"{server.url}/#/rounds")
    marked = page.locator("#rounds tbody tr", has_text="shop.kept").filter(has_text="compact")
    expect(marked).to_have_count(1)
    expect(page.locator("#rounds tbody tr", has_text="shop.kept")).to_have_count(ROUNDS + 1)
    with server.connect() as client:
        client.alter_table("shop.kept", properties={"table.datalake.pool": "hand"})
        page.goto(f"{server.url}/#/")
        tile = page.locator('[data-tile="files"]')
        leave_debt(client, files=90, rows=400)
        expect(tile).to_contain_text("90 to merge with 400 deleted rows ↑")
        leave_debt(client, files=40, rows=0)
        expect(tile).to_contain_text("40 to merge ↑")  # than five minutes ago
        leave_debt(client, files=0, rows=0)
        expect(tile).not_to_contain_text("to merge")


def leave_debt(client: Client, *, files: int, rows: int) -> None:
    """A job of this test is handed a compaction of the table and says that it left so much."""
    client.server.ask("POST", routes.MAINTAIN.format(table="shop.kept"))
    me = HeartbeatRequest(
        job=JobName("hand"), instance=new_instance_id(), pool="hand", kinds=(COMPACT,), room=1, wait_ms=0
    )
    coordinator = client.plugin.coordinator()
    (handed,) = coordinator.heartbeat(me).tables
    result = RoundResult(round_id=new_round_id(), snapshot_id=None, debt_files=files, debt_rows=rows)
    finished = TableFinished(table_id=handed.table_id, epoch=handed.epoch, result=result, kind=COMPACT)
    coordinator.heartbeat(replace(me, room=0, finished=(finished,), leaving=True))
