# SPDX-License-Identifier: Apache-2.0
"""Lists the skipped tests of a run and fails on one that the checked-in list does not give a reason for."""

from __future__ import annotations

import fnmatch
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def load_allowed(path: Path) -> dict[str, str]:
    """Pattern of test ids -> the reason why a skip is right. Lines read `PATTERN: reason`; # begins a comment."""
    allowed = {}
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, colon, reason = line.partition(": ")
            if not (colon and reason.strip()):
                sys.exit(f"{path}: {line!r} has no reason; write `PATTERN: reason`")
            allowed[pattern.strip()] = reason.strip()
    return allowed


def load_skipped(results: Path) -> dict[str, str]:
    """Test id -> the skip's own message. Strict xfails are gaps declared in the contract suites and no skips."""
    skipped = {}
    for case in ElementTree.parse(results).iter("testcase"):
        mark = case.find("skipped")
        if mark is not None and mark.get("type") != "pytest.xfail":
            skipped[f"{case.get('file')}::{case.get('name')}"] = mark.get("message", "")
    return skipped


def main(results: Path, listed: Path) -> int:
    if not results.exists():
        print("pytest wrote no results")
        return 1
    allowed, skipped = load_allowed(listed), load_skipped(results)
    unlisted = 0
    print(f"skipped tests: {len(skipped)}")
    for test, message in sorted(skipped.items()):
        reason = next((r for pattern, r in allowed.items() if fnmatch.fnmatchcase(test, pattern)), None)
        unlisted += reason is None
        print(f"  {test}: {message}" + (f" (listed: {reason})" if reason else f" -- NOT LISTED in {listed}"))
    return 1 if unlisted else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
