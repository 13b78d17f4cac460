# SPDX-License-Identifier: Apache-2.0
"""Every recovery that docs/operating promises is shown by a test that exists, or says what nobody exercised."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/operating/index.md").read_text()
SHOWN = (ROOT / "tests/operating.md").read_text()


def rows(text: str) -> list[list[str]]:
    found = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]
    return [cells for cells in found if cells[0] not in ("what happens", "statement", "tile", "what")]


def statements() -> list[str]:
    healing = PAGE.partition("## What heals by itself")[2].partition("`lakeward verify TABLE")[0]
    return [cells[0] for cells in rows(healing)]


def test_the_page_has_statements() -> None:
    assert len(statements()) > 15


@pytest.mark.parametrize("statement", statements())
def test_a_statement_is_shown(statement: str) -> None:
    assert statement in {cells[0] for cells in rows(SHOWN)}


@pytest.mark.parametrize("cells", rows(SHOWN), ids=lambda cells: cells[0])
def test_what_shows_it_exists(cells: list[str]) -> None:
    named = re.findall(r"`(tests/[\w/.]+?)(?:::(\w+))?`", cells[1])
    assert named or "not exercised" in cells[1]
    for path, test in named:
        text = (ROOT / path).read_text()
        assert not test or f"def {test}(" in text, f"{path} has no {test}"
