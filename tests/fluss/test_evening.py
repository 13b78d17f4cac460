# SPDX-License-Identifier: Apache-2.0
"""The evening of docs/fluss.md, step by step as the page has it: from the Flink job to ours, DuckDB, and back."""

from __future__ import annotations

import ast
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fluss.flink import FlinkTieringJob
from tests.fluss.kinds import Grown, Kind, counted, scan_kv
from tests.fluss.test_handover import LEASE_S
from tests.fluss.world import FlussWorld

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

PAGE = Path(__file__).parents[2] / "docs" / "fluss.md"
SECTION = re.compile(r"^## An evening .*?(?=^## )", re.DOTALL | re.MULTILINE)
PART = re.compile(r"```(?P<kind>bash|python)\n(?P<text>.*?)```|<!-- evening: (?P<event>.*?) -->", re.DOTALL)
ADDRESS, CATALOG = "127.0.0.1:9123", "sqlite:////srv/lake/catalog.db"
BIN = Path(sys.executable).parent
RUN_LIMIT_S = 300.0


class Evening:
    """What the page cannot show: rows that come in, and the Flink job."""

    def __init__(self, world: FlussWorld, folder: Path) -> None:
        self.world, self._folder, self._turn = world, folder, 0
        self.orders = Grown(Kind(name="orders"), "", "5s")
        self.customers = Grown(Kind(name="customers", primary_key=("id",)), "", "5s")
        self._ours: subprocess.Popen[bytes] | None = None
        self._flink: FlinkTieringJob | None = None
        self.events: dict[str, Callable[[], None]] = {
            "the Flink job stops": self._stop_flink,
            "all is tiered": self.wait_tiered,
            "ours stops, the Flink job starts": self._go_back,
        }

    def begin(self) -> None:
        """Three rounds of the Flink job: its equality deletes lie on `customers`."""
        self.world.produce(*self.orders.make(), *self.customers.make())
        self._start_flink()
        for _ in range(3):
            self.write()
            self.wait_tiered()

    def write(self) -> None:
        self.world.produce(*self.orders.grow(self._turn), *self.customers.grow(self._turn))
        self._turn += 1

    def wait_tiered(self) -> None:
        for table in (self.orders, self.customers):
            self.world.wait_tiered(table.name, LEASE_S)

    def run_shell(self, text: str) -> None:
        """Line by line, as pasted; the job stays up."""
        for line in text.replace(ADDRESS, self.world.cluster.bootstrap).splitlines():
            words = shlex.split(line)
            assert words[0] == "lakeward"
            command = [str(BIN / "lakeward"), *words[1:]]
            if words[1] == "tier":
                self._ours = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            else:
                done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT_S)
                assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"

    def run_python(self, text: str) -> None:
        """What it prints is what Fluss's KV store holds."""
        text = text.replace(CATALOG, self.world.cluster.catalog_uri)
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=RUN_LIMIT_S)
        assert done.returncode == 0, done.stderr
        held = scan_kv(self.world, self.customers.name)
        assert counted(held) == counted(self.customers.expected)
        assert ast.literal_eval(done.stdout) == [(len(held), sum(r["score"] for r in held))]

    def _start_flink(self) -> None:
        self._flink = FlinkTieringJob(self.world.cluster, self._folder / f"flink-{self._turn}.log")

    def _stop_flink(self) -> None:
        assert self._flink is not None
        self._flink.stop()
        self.write()

    def _go_back(self) -> None:
        assert self._ours is not None
        self._ours.send_signal(signal.SIGINT)
        assert self._ours.wait(120) in (0, 130, -signal.SIGINT)
        self.write()
        self._start_flink()
        self.wait_tiered()

    def close(self) -> None:
        if self._flink is not None:
            self._flink.stop()
        if self._ours is not None and self._ours.poll() is None:
            self._ours.terminate()
            self._ours.wait(120)


def test_the_evening_of_the_page(lone: FlussWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")
    found = SECTION.search(PAGE.read_text())
    assert found is not None
    evening, seen = Evening(lone, tmp_path), []
    try:
        evening.begin()
        for part in PART.finditer(found.group()):
            match part["kind"]:
                case "bash":
                    evening.run_shell(part["text"])
                case "python":
                    evening.run_python(part["text"])
                case None:
                    seen.append(part["event"])
                    evening.events[part["event"]]()
        assert seen == list(evening.events)
        for table in (evening.orders, evening.customers):
            table.check(lone)
    finally:
        evening.close()
