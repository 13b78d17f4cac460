# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of README and docs from a running demo: `python docs/pictures/make.py` (needs Chromium and
playwright).

With a folder as argument every page goes there too, in both themes and three widths: to be looked at."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

HERE = Path(__file__).parent
PAGES = {"dashboard": ("#/", "light", 620), "table": ("#/table/demo.orders", "dark", 900)}
ALL_PAGES = {
    "tables": "#/",
    "table": "#/table/demo.orders",
    **{name: f"#/{name}" for name in ("rounds", "jobs", "sql", "maintenance", "cost", "log", "new")},
}
WIDTHS = (390, 900, 1600)
SECONDS = "90"


def main() -> int:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("no Chromium here")
        return 1
    command = [sys.executable, "-m", "lakeward.cli", "demo", "--seconds", SECONDS, "--keep"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        url = wait_for_load(demo)
        with open_browser(chromium) as browser:
            for name, (address, theme, height) in PAGES.items():
                take_picture(browser, f"{url}/{address}", HERE / f"{name}.png", theme, (1280, height))
            for folder in sys.argv[1:]:
                take_all(browser, url, Path(folder))
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


@contextmanager
def open_browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-background-networking"])
        yield browser
        browser.close()


def take_all(browser: Browser, url: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for (name, address), theme, width in product(ALL_PAGES.items(), ("light", "dark"), WIDTHS):
        take_picture(browser, f"{url}/{address}", folder / f"{name}-{theme}-{width}.png", theme, (width, 900))


def take_picture(browser: Browser, address: str, path: Path, theme: str, size: tuple[int, int]) -> None:
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)
    page = context.new_page()
    page.goto(address)
    page.wait_for_timeout(3000)
    page.screenshot(path=path)
    context.close()


if __name__ == "__main__":
    sys.exit(main())
