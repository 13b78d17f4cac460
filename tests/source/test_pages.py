# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/postgres.md, as the page has them, against a real PostgreSQL."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.serverprocess import ServerProcess
from tests.source.conftest import Pair

PAGE = (Path(__file__).parents[2] / "docs/postgres.md").read_text()
URL, NAME = "postgres://lakeward@127.0.0.1:5439/postgres", "postgres-127.0.0.1-postgres"


@pytest.mark.soak
def test_the_page(pair: Pair, source_server: ServerProcess) -> None:
    pair.sql("CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1), (2)")
    lines = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.S) for line in block.splitlines()]
    assert len(lines) == 3
    for line in lines:
        command = line.replace(URL, pair.url).replace(NAME, f"postgres-127.0.0.1-{pair.name}")
        command = command.replace("--to shop", f"--to {pair.name}")
        words = [sys.executable, "-m", "lakeward.cli", *shlex.split(command)[1:]]
        environment = {**os.environ, "LAKEWARD_SERVER": source_server.url}
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "public.*" in done.stdout
    assert pair.stored("orders", "id") == [(1,), (2,)]
