# SPDX-License-Identifier: Apache-2.0
"""What the code says of its design is there: every section that a comment cites exists in docs/design.md."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
CITED = re.compile(r"design\.md(?:\s+section)?\s+(\d+(?:\.\d+)?)")


def sections() -> set[str]:
    """`6` for a heading, `6.5` for a numbered step below it."""
    known, section = set[str](), ""
    for line in (ROOT / "docs" / "design.md").read_text().splitlines():
        if heading := re.match(r"## (\d+)\. ", line):
            section = heading[1]
            known.add(section)
        elif section and (step := re.match(r"(\d+)\. ", line)):
            known.add(f"{section}.{step[1]}")
    return known


def test_every_section_that_is_cited_exists() -> None:
    known, cited = sections(), dict[str, str]()
    for folder in ("src", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            cited |= {number: str(path.relative_to(ROOT)) for number in CITED.findall(path.read_text())}
    assert len(cited) > 8, "the search looks in the wrong folder"
    assert {number: path for number, path in cited.items() if number not in known} == {}
