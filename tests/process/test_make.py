# SPDX-License-Identifier: Apache-2.0
"""`make` as a person calls it."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_make_alone_lists_the_targets() -> None:
    shown = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("demo", "test", "unit", "check", "bench", "soak", "docs", "clean", "lock"):
        assert f"make {target} " in shown
