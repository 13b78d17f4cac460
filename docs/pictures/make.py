# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of README and docs from a running demo: `python docs/pictures/make.py` (needs Chromium and playwright)."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
PAGES = {"dashboard": ("#/", "light", 620), "table": ("#/table/demo.orders", "dark", 900)}
SECONDS = "90"


def main() -> int:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("no Chromium here")
        return 1
    command = [sys.executable, "-m", "lakeward.cli", "demo", "--seconds", SECONDS, "--keep"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        take_pictures(chromium, wait_for_load(demo))
    finally:
        demo.send_signal(signal.SIGINT)
        demo.wait(120)
    return 0


def wait_for_load(demo: subprocess.Popen[str]) -> str:
    """The dashboard's address, once the demo has run for some time and every table has curves to show."""
    url = ""
    assert demo.stdout is not None
    for line in demo.stdout:
        print(line, end="")
        if found := re.match(r"Dashboard: (\S+)", line):
            url = found.group(1)
        if re.match(r" *8\d s ", line):
            return url
    raise SystemExit("the demo ended before it showed anything")


def take_pictures(chromium: str, url: str) -> None:
    with sync_playwright() as playwright, urlopen(f"{url}/readyz"):
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-background-networking"])
        for name, (address, theme, height) in PAGES.items():
            context = browser.new_context(viewport={"width": 1280, "height": height}, color_scheme=theme)
            page = context.new_page()
            page.goto(f"{url}/{address}")
            page.wait_for_selector("svg.spark, svg.big")
            page.wait_for_timeout(3000)
            page.screenshot(path=HERE / f"{name}.png")
            context.close()
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
