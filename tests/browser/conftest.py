# SPDX-License-Identifier: Apache-2.0
"""A real Chromium for the dashboard. Every page that a test opens must end without an error on its console."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.spark.processes import Job, Server

LIMIT_MS = 60_000
ALONE = ["--no-sandbox", "--disable-background-networking"]
QUICK = {
    "coordinator.lease.duration": "4 s",
    "coordinator.sweep.interval": "200 ms",
    "coordinator.quarantine.failures": "2",
    "coordinator.backoff.initial": "100 ms",
}
OpenPage = Callable[..., Page]


def find_chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Of one module and no longer: while it lives, Playwright's event loop runs in this thread, and nobody
    else's can.
    """
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=program, args=ALONE)
        yield made
        made.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """`open_page(url, quiet=False)`: `quiet` False for tests that take the server away, as Chromium then reports failed
    requests.
    """
    opened, errors = [], []

    def open_one(
        url: str, *, width: int = 1280, quiet: bool = True, route: Callable[[Page], None] | None = None
    ) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900})
        page = context.new_page()
        page.set_default_timeout(LIMIT_MS)
        opened.append(context)

        def note(message: ConsoleMessage) -> None:
            if message.type == "error" and quiet:
                errors.append(message.text)

        page.on("console", note)
        page.on("pageerror", lambda error: errors.append(str(error)))
        if route is not None:
            route(page)
        page.goto(url)
        return page

    yield open_one
    for context in opened:
        for page in context.pages:
            page.unroute_all(
                behavior="wait"
            )  # an answer that a test makes up may be under way: closed now, it would fail
        context.close()
    assert errors == []


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("dashboard"), QUICK)
    yield made
    made.kill()


@pytest.fixture(scope="module")
def job(server: Server) -> Iterator[Job]:
    made = Job(server, "painter", spark=False)
    yield made
    made.kill()
