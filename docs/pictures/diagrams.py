# SPDX-License-Identifier: Apache-2.0
"""Pictures of the docs' mermaid diagrams, so that the site asks no foreign host for a script.

`python docs/pictures/diagrams.py` draws those that are missing and removes those that nobody shows (needs npm, Chromium
and playwright). As a hook of mkdocs it shows the picture in place of the text; a diagram without one fails the build."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
FOLDER = DOCS / "pictures" / "diagrams"
_DIAGRAM = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
_SETTINGS = {"startOnLoad": False, "theme": "neutral", "htmlLabels": False, "flowchart": {"htmlLabels": False}}
_LIBRARY = "mermaid@11"


def name_of(diagram: str) -> str:
    """A picture is named by its text: one that was changed is drawn anew."""
    return f"{hashlib.sha256(diagram.encode()).hexdigest()[:16]}.svg"


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    above = "../" * page.file.src_uri.count("/")

    def show(found: re.Match[str]) -> str:
        name = name_of(found[1])
        if not (FOLDER / name).exists():
            from mkdocs.exceptions import PluginError

            raise PluginError(f"{page.file.src_uri}: a diagram has no picture; run `python docs/pictures/diagrams.py`")
        return f"![the diagram described in the text]({above}pictures/diagrams/{name})"

    return _DIAGRAM.sub(show, markdown)


def main() -> int:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("no Chromium here")
        return 1
    diagrams = {name_of(text): text for page in DOCS.rglob("*.md") for text in _DIAGRAM.findall(page.read_text())}
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.svg"):
        if old.name not in diagrams:
            old.unlink()
    missing = {name: text for name, text in diagrams.items() if not (FOLDER / name).exists()}
    with tempfile.TemporaryDirectory() as scratch:
        if missing:
            subprocess.run(["npm", "install", "--silent", "--prefix", scratch, _LIBRARY], check=True)
            draw(chromium, Path(scratch) / "node_modules/mermaid/dist/mermaid.min.js", missing)
    print(f"{len(missing)} drawn, {len(diagrams)} in all")
    return 0


def draw(chromium: str, library: Path, diagrams: dict[str, str]) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.add_script_tag(path=str(library))
        page.evaluate(f"mermaid.initialize({json.dumps(_SETTINGS)})")
        for name, text in diagrams.items():
            svg = page.evaluate("async text => (await mermaid.render('diagram', text)).svg", text)
            svg = svg.replace("<br>", "<br/>").replace('style="', 'style="background-color: white; ', 1)
            (FOLDER / name).write_text(svg + "\n")
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
