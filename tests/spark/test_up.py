# SPDX-License-Identifier: Apache-2.0
"""`lakeward up`: server and job from one command, rows on their way into the lake, children started again, and an
orderly end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lakeward.client import connect
from lakeward.errors import LakewardError
from lakeward_testing.ports import free_port
from lakeward_testing.waiting import wait_until
from tests.spark.processes import tier_now


@pytest.fixture
def up(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "lakeward.cli", "up", "--data", str(tmp_path / "data"), "--port", str(free_port())]
    with (tmp_path / "up.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--master", "local[2,4]", "--json"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=tmp_path,
            env=os.environ,
        )
        yield process
        for child in (
            [*psutil.Process(process.pid).children(recursive=True), process] if process.poll() is None else [process]
        ):
            child.kill()
        process.communicate()


def find_child(process: subprocess.Popen[str], command: str) -> psutil.Process:
    return next(c for c in psutil.Process(process.pid).children() if c.cmdline()[3:4] == [command])


@pytest.mark.soak
def test_up_serves_tiers_revives_and_ends(up: subprocess.Popen[str]) -> None:
    assert up.stdout is not None
    told = json.loads(up.stdout.readline())
    with connect(told["url"]) as client:
        table = client.create_table(
            "shop.orders", "id BIGINT NOT NULL, state STRING", primary_key="id", freshness="1 h"
        )
        table.upsert([{"id": 1, "state": "new"}, {"id": 2, "state": "new"}])
        tier_now(client, table)
        assert client.read("shop.orders", mode="lake").to_table().num_rows == 2
        server = find_child(up, "server")
        server.kill()
        server.wait(120)

        def write() -> bool:
            table.upsert([{"id": 1, "state": "paid"}])
            return True

        wait_until(write, what="the server to be back", tolerate=(LakewardError,))
        tier_now(client, table)
        rows = client.read("shop.orders", mode="lake").to_table().to_pylist()
        assert sorted(r["state"] for r in rows) == ["new", "paid"]
    children = psutil.Process(up.pid).children(recursive=True)
    assert {c.cmdline()[3] for c in psutil.Process(up.pid).children()} == {"server", "tier"}
    up.send_signal(signal.SIGTERM)
    assert up.wait(120) == 0
    assert not psutil.wait_procs(children, timeout=120)[1]
