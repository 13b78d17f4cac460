# SPDX-License-Identifier: Apache-2.0
"""Strict parsing of durations, sizes, booleans, numbers, choices and lists."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lakeward.config.kinds import (
    boolean,
    choice,
    duration,
    integer,
    path,
    ratio,
    render_duration,
    render_size,
    size,
    text,
    word_list,
)
from lakeward.config.options import Fsync


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("30 s", 30),
        ("3min", 180),
        ("500ms", 0.5),
        ("7 d", 604_800),
        ("1 h", 3_600),
        ("2 Hours", 7_200),
        ("250 us", 0.00025),
        ("0", 0),
        ("0 s", 0),
        (" 5 m ", 300),
    ],
)
def test_durations(given: str, seconds: float) -> None:
    assert duration().parse(given) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "given", ["30", "s", "", "-1 s", "1.5 h", "3 minutes ago", "1 fortnight", "1h30min", "٣ s", "9" * 18 + " d"]
)
def test_durations_that_are_refused(given: str) -> None:
    with pytest.raises(ValueError):
        duration().parse(given)


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ("64mb", 64 << 20),
        ("64 MiB", 64 << 20),
        ("1 k", 1024),
        ("5 bytes", 5),
        ("2tb", 2 << 40),
        ("0", 0),
        ("1gib", 1 << 30),
    ],
)
def test_sizes(given: str, count: int) -> None:
    assert size().parse(given) == count


@pytest.mark.parametrize("given", ["64", "64 mbit", "mb", "", "-1 kb", "1.5gb"])
def test_sizes_that_are_refused(given: str) -> None:
    with pytest.raises(ValueError):
        size().parse(given)


@pytest.mark.parametrize(("given", "value"), [("true", True), ("FALSE", False), (" True ", True)])
def test_booleans(given: str, value: bool) -> None:
    assert boolean().parse(given) is value


@pytest.mark.parametrize("given", ["yes", "1", "0", "on", "", "t"])
def test_booleans_that_are_refused(given: str) -> None:
    with pytest.raises(ValueError):
        boolean().parse(given)


def test_numbers_keep_their_bounds() -> None:
    assert integer(minimum=1, maximum=5).parse("5") == 5
    for given in ("0", "6", "1.0", "five", "", "1_000", "0x1"):
        with pytest.raises(ValueError):
            integer(minimum=1, maximum=5).parse(given)
    assert ratio().parse("0.25") == 0.25
    for given in ("1.5", "nan", "inf", "-0.1", "half"):
        with pytest.raises(ValueError):
            ratio().parse(given)
    with pytest.raises(ValueError, match=r"below 0\.0"):
        ratio().parse("-0.1")


def test_bounds_are_named_in_the_reason_and_in_what_is_allowed() -> None:
    kind = duration(minimum=timedelta(seconds=1), maximum=timedelta(hours=71))
    with pytest.raises(ValueError, match="below 1 s"):
        kind.parse("10 ms")
    with pytest.raises(ValueError, match="above 71 h"):
        kind.parse("3 d")
    assert "at least 1 s" in kind.allowed
    assert "at most 71 h" in kind.allowed


def test_choices_lists_and_texts() -> None:
    assert choice(Fsync).parse("ALWAYS") is Fsync.ALWAYS
    assert "interval" in choice(Fsync).allowed
    with pytest.raises(ValueError):
        choice(Fsync).parse("sometimes")
    assert word_list().parse("a, b ,c") == ("a", "b", "c")
    assert word_list().parse("") == ()
    with pytest.raises(ValueError):
        word_list().parse("a,,b")
    for kind in (text(), path()):
        with pytest.raises(ValueError):
            kind.parse("  ")


def test_the_biggest_whole_unit_is_shown() -> None:
    assert render_duration(timedelta(minutes=90)) == "90 min"
    assert render_duration(timedelta(0)) == "0 s"
    assert render_size(64 << 20) == "64 mb"
    assert render_size(1025) == "1025 b"
