# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of the page in eight states: `python -m docs.pictures.states [FOLDER]` (needs Chromium and
playwright). A real server serves the page and the shape of its answer; tables and jobs are made up, tiles are worked
out of them by the server's own code."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Route, sync_playwright

from lakeward.model.ids import Epoch, InstanceId, JobName, TableId
from lakeward.model.state import TableState
from lakeward.model.table import TablePath
from lakeward.protocol.codec import encode
from lakeward.protocol.views import JobStatus, TableStatus
from lakeward.server.feed.tablefeed import TableFeed
from lakeward.server.show.tiles import Overview, make_tiles
from tests.spark.processes import Server

HERE = Path(__file__).parent / "states"
SENSOR = TableStatus(
    path=TablePath("feed", "sensor"),
    table_id=TableId("t"),
    state=TableState.SCHEDULED,
    epoch=Epoch(7),
    freshness_ms=15_000,
    lag_ms=8_000,
    waiting_rows=1_200,
    last_duration_ms=2_100,
    lake_rows=4_812_344,
    lake_files=38,
    lake_bytes=310_000_000,
)
ORDERS = replace(SENSOR, path=TablePath("shop", "orders"), freshness_ms=60_000, lag_ms=12_000, lake_rows=91_204)
JOB = JobStatus(
    name=JobName("local"),
    instance=InstanceId("i"),
    pool="default",
    slots=4,
    live=True,
    last_beat_at_ms=0,
    expected=True,
    state="live",
)
WELL = Overview(tables=[SENSOR, ORDERS], jobs=[JOB])


def others(**changes: Any) -> list[TableStatus]:
    return [SENSOR, replace(ORDERS, **changes)]


REASON = "the lake table lacks column total; `lakeward table reconcile-schema shop.orders` undoes that"
STATES: Mapping[str, Overview] = {
    "fresh": WELL,
    "late": replace(WELL, tables=others(lag_ms=190_000)),
    "failed": replace(WELL, tables=others(state=TableState.QUARANTINED, failures_in_a_row=5, failures=5, reason=REASON)),
    "disabled": replace(
        WELL,
        tables=others(
            state=TableState.DISABLED,
            blocked="its lake main is not in the server's configuration",
            reason="its lake main is not in the server's configuration",
        ),
    ),
    "paused": replace(WELL, tables=others(state=TableState.PAUSED, reason="paused by call", waiting_rows=4_000)),
    "no-job": replace(WELL, jobs=[], tables=[replace(t, served=False) for t in WELL.tables]),
    "no-tables": Overview(tables=[], jobs=[JOB]),
    "thousand-tables": replace(
        WELL,
        tables=[
            replace(SENSOR, path=TablePath("many", f"t{n:04}"), lag_ms=10 * n, freshness_ms=60_000) for n in range(1_000)
        ],
    ),
}


def main() -> int:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        server = Server(Path(data), {})
        try:
            for name, seen in STATES.items():
                take_picture(browser, server.url, folder / f"{name}.png", seen)
        finally:
            server.kill()
            browser.close()
    return 0


def take_picture(browser: Browser, url: str, path: Path, seen: Overview) -> None:
    def answer(route: Route) -> None:
        body = route.fetch(url=route.request.url.split("?")[0] + "?since=").json()
        jobs = [replace(j, last_beat_at_ms=body["now_ms"] - 1_000) for j in seen.jobs]
        feed = TableFeed()
        feed.take(seen.tables, body["now_ms"])
        shown = {"tables": feed.since("", lambda _: True).tables, "jobs": jobs, "tiles": make_tiles(seen)}
        made = json.loads(json.dumps(encode(shown)))
        route.fulfill(json={**body, **made, "warnings": [], "whole": True, "gone": [], "count": len(seen.tables)})

    def lags(route: Route) -> None:
        held = {str(t.path): t for t in seen.tables}
        names = [part.split("=")[1] for part in route.request.url.split("?")[1].split("&")]
        route.fulfill(json={"lags": {name: saw_tooth(held[name]) for name in names if name in held}})

    page = browser.new_page(viewport={"width": 1280, "height": 560})
    page.route("**/api/v1/dashboard?*", answer)
    page.route("**/api/v1/lags*", lags)
    page.goto(url)
    page.wait_for_timeout(2_500)
    page.screenshot(path=path)
    page.close()


def saw_tooth(table: TableStatus) -> list[tuple[int, int]]:
    now, samples = time.time_ns() // 1_000_000, []
    for at in range(now - 3_500_000, now, 10_000):
        samples.append((at, (at - now + table.lag_ms) % (table.freshness_ms * 9 // 10)))
    return samples


if __name__ == "__main__":
    sys.exit(main())
