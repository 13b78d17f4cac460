# SPDX-License-Identifier: Apache-2.0
"""The dashboard over 1,000 real tables, in a real browser: until its rows are shown, and until one has scrolled to the
last.

`LAKEWARD_BENCH_TABLES=50` for a small version. Needs Chromium and playwright."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

from bench.report import Report
from tests.spark.processes import Server

TABLES = int(os.environ.get("LAKEWARD_BENCH_TABLES", "1000"))
LOADS = 10


@contextmanager
def open_browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("no Chromium here")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-background-networking"]
        )
        yield browser
        browser.close()


def load(page: Page, url: str) -> float:
    """Seconds from the click on its address to rows that are there."""
    began = time.perf_counter()
    page.goto(f"{url}/#/")
    page.locator("tbody[data-table]").nth(min(TABLES, 60) - 1).wait_for()
    return time.perf_counter() - began


def scroll(page: Page) -> float:
    began = time.perf_counter()
    while page.locator("tbody[data-table]").count() < TABLES:
        page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
        page.wait_for_timeout(20)
    return time.perf_counter() - began


def main() -> None:
    report = Report("dashboard")
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as folder, open_browser() as browser:
        server = Server(Path(folder))
        try:
            with server.connect() as client:
                for n in range(TABLES):
                    client.create_table(f"many.t{n:04}", "id BIGINT, v STRING", freshness="1 min")
            with report.measure() as cost:
                pages = [browser.new_context().new_page() for _ in range(LOADS)]
                times = [load(page, server.url) for page in pages]
                scrolled = scroll(pages[-1])
        finally:
            server.stop()
    what = f"{TABLES:,} tables, nothing cached"
    report.add(f"{what}: until rows are shown, p50", figure=float(np.median(times)), unit="s", target="<= 1", cost=cost)
    report.add(
        f"{what}: until rows are shown, slowest of {LOADS}", figure=max(times), unit="s", target="<= 1", cost=cost
    )
    report.add(f"{what}: from the first row to the last by scrolling", figure=scrolled, unit="s", cost=cost)
    report.finish()


if __name__ == "__main__":
    main()
