# SPDX-License-Identifier: Apache-2.0
"""The documentation's site: every page once in its navigation, every diagram as a picture of its own text."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"


def test_every_page_stands_once_in_the_navigation() -> None:
    shown = re.findall(r"^ +- .+: (\S+\.md)$", (DOCS.parent / "mkdocs.yml").read_text(), re.M)
    assert sorted(shown) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_every_diagram_has_a_picture_and_no_picture_is_left_over() -> None:
    """Site and readers ask no foreign host for the script that would draw them."""
    texts = [
        text for page in DOCS.rglob("*.md") for text in re.findall(r"```mermaid\n(.*?)```", page.read_text(), re.S)
    ]
    drawn = {picture.stem for picture in (DOCS / "pictures/diagrams").glob("*.svg")}
    assert {sha256(text.encode()).hexdigest()[:16] for text in texts} == drawn, "run docs/pictures/diagrams.py"


def test_cases_of_change_feeds_name_tests_that_exist() -> None:
    folder = DOCS.parent / "tests/source"
    rows = [line for line in (DOCS / "cdc.md").read_text().splitlines() if line.startswith("| ")][1:]
    for row in rows:
        cell = row.strip("| ").split(" | ")[-1]
        file = ""
        for name, test in re.findall(r"`(test_\w+\.py)?(?:::(\w+))?`", cell):
            file = (folder / name).read_text() if name else file
            assert not test or f"def {test}(" in file, row
        assert file or cell == "the same", row
