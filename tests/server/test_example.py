# SPDX-License-Identifier: Apache-2.0
"""The example program does what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.kit.serverprocess import ServerProcess

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "producer.py"


def test_the_producer_example_runs(shared_server: ServerProcess) -> None:
    run = subprocess.run([sys.executable, str(EXAMPLE), shared_server.url], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "read back 10000 rows"
