# SPDX-License-Identifier: Apache-2.0
"""The walking skeleton: producers, server, `lakeward tier` on PySpark, Iceberg, DuckDB, as the demo runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.spark
def test_the_demo_walks_the_whole_way_and_proves_it(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "lakeward.cli",
        "demo",
        "--seconds",
        "3",
        "--freshness",
        "2 s",
        "--data",
        str(tmp_path / "data"),
        "--json",
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    outcome = json.loads(run.stdout)
    assert outcome["agreed"]
    assert outcome["clicks"] > 0
    assert outcome["orders"] > 0
    assert "demo.clicks: holds" in run.stderr
    lake, union = (
        line.split(":", 1)[1] for line in run.stderr.splitlines() if line.startswith(("  lake :", "  union:"))
    )
    assert lake == union
