# SPDX-License-Identifier: Apache-2.0
"""Commands shown in README and docs work when pasted: each page's blocks run in order, against
a real server and job.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lakeward.cli import app
from lakeward.config import resolve
from tests.spark.processes import Job, Server

ROOT = Path(__file__).parents[2]
ADDRESS = "http://127.0.0.1:9050"
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/operating/*.md")])
FENCE = re.compile(r"(?:<!-- untested: (?P<reason>[^\n]*?) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)```", re.DOTALL)
REASONS = (
    "Superset",
    "Trino",
    "Flink",
    "Kafka",
    "Postgres",
    "Docker",
    "YARN",
    "Kubernetes",
    "it downloads PySpark 4.1",
    "it downloads DuckDB's extension",
    "needs a server with a token",
)
STAYS_UP = re.compile(r"^(?:\S*/)?lakeward (up|server|tier|demo)(?![\w-])(?P<rest>.*)", re.DOTALL)
"""Commands that run until they are stopped: their options are checked here, and the demo's test runs all four."""

OTHERS = ("round.md", "plugin.md", "states.md", "reading.md", "reliability.md", "fluss.md", "dbt.md")
"""Pages whose blocks are fragments, not commands to paste: their Python is parsed, the tests of what they describe run
it.
"""


@dataclass(frozen=True)
class Block:
    page: str
    kind: str
    text: str
    reason: str | None


def blocks(page: Path) -> list[Block]:
    found = FENCE.finditer(page.read_text())
    return [
        Block(page.name, m["kind"], m["text"], m["reason"])
        for m in found
        if m["kind"] in ("bash", "python", "sql", "toml", "properties")
    ]


def runnable() -> list[Any]:
    """Pages with something to run. Those that start Spark take longer than all others: with --soak."""
    found = [
        p
        for p in PAGES
        if p.name not in OTHERS and any(b.reason is None and b.kind in ("bash", "python") for b in blocks(p))
    ]
    slow = ("kafka.md", "readers.md")
    return [
        pytest.param(p, marks=[pytest.mark.soak] if p.name in slow else [], id=str(p.relative_to(ROOT))) for p in found
    ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("docs"))
    job = Job(made, "docs", spark=False)
    yield made
    job.kill()
    made.kill()


@pytest.mark.parametrize("page", runnable())
def test_a_page_works_when_pasted(page: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEWARD_SERVER", server.url)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for block in blocks(page):
        text = block.text.replace(ADDRESS, server.url)
        if block.reason is not None:
            continue
        if block.kind == "bash":
            run_shell(block, text)
        elif block.kind == "python":
            run(block, [sys.executable, "-c", text])
        elif block.kind == "toml":
            (tmp_path / "page.toml").write_text(text)
            assert resolve(file=tmp_path / "page.toml", environment={}).resolved()


def run_shell(block: Block, text: str) -> None:
    """Line by line, as pasted, less make targets and commands that stay up. A plain call of `lakeward` runs in this
    process, which spares a second of imports; what needs a shell gets one."""
    for command in [text] if "<<" in text else re.split(r"(?<!\\)\n", text):
        words = command.strip()
        if found := STAYS_UP.match(words):
            check_options(found[1], found["rest"])
        elif words.startswith("lakeward ") and not re.search(r"[|><&$]", words):
            assert app.run(shlex.split(words)[1:]) == 0, f"{block.page}: {words}"
        elif words and not words.startswith("make"):
            run(block, ["bash", "-euo", "pipefail", "-c", command])


def check_options(command: str, rest: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        assert app.run([command, "--help"]) == 0
    for option in re.findall(r"--[a-z-]+", rest):
        assert option in shown.getvalue() or option == "--config", f"lakeward {command} has no {option}"


def run(block: Block, command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{block.page}:\n{block.text}\nsaid:\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_is_not_run_says_why(page: Path) -> None:
    for block in blocks(page):
        if block.kind == "python":
            compile(block.text, page.name, "exec")
        if block.reason is not None:
            assert block.reason.startswith(REASONS), f"{page.name}: {block.reason!r} is no reason"
        elif page.name not in OTHERS:
            assert block.kind not in ("sql", "properties"), f"{page.name}: nobody runs this {block.kind} block; mark it"
