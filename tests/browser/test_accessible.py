# SPDX-License-Identifier: Apache-2.0
"""Every page, light and dark, before axe: what people who do not see the page, or see little, need is there."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import LIMIT_MS
from tests.spark.processes import Server

pytestmark = pytest.mark.browser
PAGES = ("#/", "#/table/axe.orders", "#/rounds", "#/jobs")


def axe() -> str:
    """The program itself; the package around it is not needed."""
    spec = find_spec("axe_playwright_python")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "axe.min.js").read_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(server: Server, browser: Browser, theme: Literal["light", "dark"]) -> None:
    with server.connect() as client:
        client.create_table("axe.orders", "id bigint", freshness="1 h", if_not_exists=True)
    context = browser.new_context(bypass_csp=True, color_scheme=theme)
    page = context.new_page()
    for address in PAGES:
        page.goto(f"{server.url}/{address}")
        expect(page.locator("#contact")).to_have_class(re.compile("live"), timeout=LIMIT_MS)
        expect(page.locator("h1")).to_have_count(1)
        page.evaluate(axe())
        found = page.evaluate("axe.run()")["violations"]
        assert [(v["id"], v["nodes"][0]["html"]) for v in found] == [], f"{address}, {theme}"
    context.close()
