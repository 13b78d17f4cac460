# SPDX-License-Identifier: Apache-2.0
"""`tests/scenarios.md` names all forty scenarios and, in all its tables, only tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "tests/scenarios.md").read_text()
EVERY = [line.split("|") for line in TEXT.splitlines() if line.startswith("|")]
ROWS = [line.split("|") for line in TEXT.splitlines() if re.match(r"\| \d+ \|", line)]


def test_all_forty_are_there_and_say_what_they_are() -> None:
    assert [int(row[1]) for row in ROWS] == list(range(1, 41))
    assert all(row[3].strip().startswith(("as Fluss", "ours, because", "later")) for row in ROWS)
    assert all(row[4].strip() or row[3].strip().startswith("later") for row in ROWS)


def test_every_named_test_exists() -> None:
    missing = []
    contract = "\n".join(
        p.read_text() for p in (ROOT / "packages/lakeward-testing/src/lakeward_testing/lakes").glob("*.py")
    )
    for row in EVERY:
        file = ""
        for name in re.findall(r"`([^`]*(?:::|\.py)[^`]*)`", row[-2]):
            place, _, test = name.partition("::")
            file = place or file
            text = contract if file == "LakeContract" else (ROOT / file).read_text() if (ROOT / file).is_file() else ""
            if not text or (test and f"def {test}(" not in text):
                missing.append(f"{row[1].strip()}: {name}")
    assert missing == []
