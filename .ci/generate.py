# SPDX-License-Identifier: Apache-2.0
"""Writes the pages of docs/ that come from code; with --check it only says which are stale, and fails."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

PAGES = {
    "docs/reference/config.md": "lakeward.config.reference:render",
    "docs/reference/http.md": "lakeward.server.reference:render",
    "docs/reference/python.md": "pythonapi:render",
    "docs/states.md": "lakeward.model.state:render_page",
}
"""Page -> the function that renders it. A generated page is never edited by hand."""


def render(source: str) -> str:
    module, _, function = source.partition(":")
    text = getattr(importlib.import_module(module), function)()
    assert isinstance(text, str)
    return text.rstrip("\n") + "\n"


def main(check: bool) -> int:
    root = Path(__file__).resolve().parent.parent
    stale = 0
    for page, source in PAGES.items():
        path, text = root / page, render(source)
        if path.exists() and path.read_text() == text:
            continue
        stale += 1
        if check:
            print(f"{page} is not what {source} renders; run `make generate`")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(page)
    return stale if check else 0


if __name__ == "__main__":
    sys.exit(1 if main("--check" in sys.argv[1:]) else 0)
