# SPDX-License-Identifier: Apache-2.0
"""Reading ahead changes neither order nor errors, and leaves no thread behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from lakeward.lake.readahead import DEPTH, WIDTH, read_ahead
from lakeward_testing.waiting import wait_until


def numbers(start: int, count: int, made: list[int] | None = None) -> Callable[[], Iterator[int]]:
    def make() -> Iterator[int]:
        for n in range(start, start + count):
            if made is not None:
                made.append(n)
            yield n

    return make


def threads() -> int:
    return sum(t.name == "read-ahead" for t in threading.enumerate())


def test_items_come_in_order() -> None:
    assert list(read_ahead([numbers(0, 20), numbers(20, 0), numbers(20, 1), numbers(21, 30)])) == list(range(51))
    assert list(read_ahead([])) == []
    assert threads() == 0


def test_an_error_comes_after_the_items_before_it() -> None:
    def broken() -> Iterator[int]:
        yield 3
        raise FileNotFoundError("four")

    seen = []
    with pytest.raises(FileNotFoundError, match="four"):
        for n in read_ahead([numbers(0, 3), broken, numbers(9, 100)]):
            seen.append(n)
    assert seen == [0, 1, 2, 3]
    assert threads() == 0


def test_nobody_reads_far_ahead_and_stopping_early_ends_it() -> None:
    made: list[int] = []
    items = read_ahead([numbers(k * 1_000, 1_000, made) for k in range(5)])
    assert next(items) == 0
    wait_until(lambda: len(made) >= 1 + WIDTH * (DEPTH + 1) - 1, what="both sources full")
    assert len(made) <= 1 + WIDTH * (DEPTH + 1)
    items.close()  # type: ignore[attr-defined]
    assert threads() == 0
