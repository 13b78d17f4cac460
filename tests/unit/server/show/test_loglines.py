# SPDX-License-Identifier: Apache-2.0
"""The page's log: newest first, as many as are kept, by level."""

from __future__ import annotations

import logging

from lakeward.server.feed.loglines import KEPT, LogLines


def record(level: int, words: str, *values: object, error: BaseException | None = None) -> logging.LogRecord:
    told = None if error is None else (type(error), error, None)
    return logging.LogRecord("lakeward.x", level, "f", 1, words, values, told)


def test_newest_come_first_and_levels_are_chosen() -> None:
    lines = LogLines()
    lines.emit(record(logging.INFO, "a %s", 1))
    lines.emit(record(logging.ERROR, "b", error=ValueError("why")))
    lines.emit(record(logging.WARNING, "c %d", "no number"))
    assert [x["words"] for x in lines.newest(10)] == ["c %d", "b: ValueError: why", "a 1"]
    assert [x["level"] for x in lines.newest(10, logging.WARNING)] == ["warning", "error"]


def test_old_lines_go() -> None:
    lines = LogLines()
    for n in range(KEPT + 5):
        lines.emit(record(logging.INFO, "x" * 3_000 if n == KEPT + 4 else str(n)))
    held = lines.newest(KEPT + 5)
    assert len(held) == KEPT
    assert held[-1]["words"] == "5"
    assert len(held[0]["words"]) == 2_000
