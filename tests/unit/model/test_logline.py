# SPDX-License-Identifier: Apache-2.0
"""Nobody but the server begins a line of its log."""

from __future__ import annotations

import io
import logging

from lakeward.model import EscapedLines


def logged(message: str, *arguments: object, error: Exception | None = None) -> list[str]:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(EscapedLines())
    logger = logging.Logger("there")
    logger.addHandler(handler)
    logger.warning(message, *arguments, exc_info=error)
    return out.getvalue().rstrip("\n").split("\n")


def test_a_value_does_not_begin_a_line() -> None:
    forged = "x\n2026-01-01 00:00:00,000 INFO lakeward.server: all is well\r\x1b[2K\u2028\x85"
    (line,) = logged("no such path %s", forged)
    assert line.endswith(r"x\n2026-01-01 00:00:00,000 INFO lakeward.server: all is well\r\x1b[2K\u2028\x85")
    assert "WARNING there: no such path" in line


def test_words_of_people_stay_readable() -> None:
    (line,) = logged("table %s", "größe 表 🙂")
    assert line.endswith("table größe 表 🙂")


def test_a_stack_is_told_from_log_lines() -> None:
    try:
        raise ValueError("bad\n2026-01-01 00:00:00,000 INFO lakeward.server: all is well")
    except ValueError as error:
        first, *stack = logged("it failed", error=error)
    assert first.endswith("WARNING there: it failed")
    assert any("ValueError: bad" in line for line in stack)
    assert all(line.startswith("  | ") for line in stack)


def test_lines_are_bounded() -> None:
    try:
        raise ValueError("y" * 1_000_000)
    except ValueError as error:
        lines = logged("%s", "x" * 1_000_000, error=error)
    assert sum(map(len, lines)) < 50_000
    assert "(1000" in lines[0]
