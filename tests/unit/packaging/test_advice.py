# SPDX-License-Identifier: Apache-2.0
"""Every command that a message, a finding, the page or a document recommends is in tests/advice.md, with the
test that runs it in the situation, or a note that none does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.cli.commands import COMMANDS

ROOT = Path(__file__).parents[3]
LIST = (ROOT / "tests/advice.md").read_text()
NOT_ADVICE = ("coordinator/state/record", "server/process", "tiering/job/arguments", "verify/spark")
"""They name a program or a pattern of commands, and recommend none."""

GROUPS = ("backup", "catalog", "cut", "database", "lake", "table")
NAMES = {command.name for command in COMMANDS}
COMMAND = re.compile(r"lakeward ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?([^`\"\n]*?)(?=lakeward |[`\"\n]|$)")


def recommended() -> set[str]:
    """`table resync`, and `table resync --discard-newer` for each flag that is named with it."""
    return {command for text in texts() for command in commands_in(text)}


def texts() -> Iterator[str]:
    """Messages of all packages, lines of the page's scripts, and code on pages for operators outside of blocks, which
    tests/server/test_docs.py runs."""
    source = ROOT / "src/lakeward"
    for file in source.rglob("*.py"):
        if str(file.relative_to(source).with_suffix("")) not in NOT_ADVICE:
            yield from messages(ast.parse(file.read_text()))
    for file in source.rglob("*.js"):
        yield from (line.replace("</span>", "`") for line in file.read_text().splitlines())
    for page in (ROOT / "docs/operating").glob("*.md"):
        outside = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        yield from re.findall(r"`(lakeward [^`]+)`", outside)


def commands_in(text: str) -> Iterator[str]:
    for match in COMMAND.finditer(text):
        if match[1] in NAMES:
            key = f"{match[1]} {match[2] or ''}".strip() if match[1] in GROUPS else match[1]
            yield key
            yield from (f"{key} {flag}" for flag in re.findall(r" (--[a-z][a-z-]+)", match[3]))


def messages(tree: ast.AST) -> Iterator[str]:
    """Texts but docstrings; what is put into one is an X."""
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in bare or id(node) in inner:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else "X" for p in node.values)


def rows() -> list[list[str]]:
    lines = [line for line in LIST.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_recommended_command_is_listed() -> None:
    assert recommended() <= {cells[0].strip("`") for cells in rows()}


def test_the_counts_are_right() -> None:
    listed = rows()
    open_ones = sum("not exercised" in cells[2] for cells in listed)
    assert f"{len(listed)} commands, {len(listed) - open_ones} run by a test in the situation, {open_ones} not" in LIST


@pytest.mark.parametrize("cells", rows(), ids=lambda cells: cells[0])
def test_what_runs_it_exists(cells: list[str]) -> None:
    named = re.findall(r"`(tests/[\w/.]+?)(?:::(\w+))?`", cells[2])
    assert named or "not exercised" in cells[2]
    for path, test in named:
        text = (ROOT / path).read_text()
        assert not test or f"def {test}(" in text, f"{path} has no {test}"
