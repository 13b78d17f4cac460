# SPDX-License-Identifier: Apache-2.0
"""The oracle's comparison sees what differs: a row too many, too few, twice, or another by one bit."""

from __future__ import annotations

from typing import Any

import pytest

from lakeward_testing.oracle.truth import Expected, Truth

ROWS: list[dict[str, Any]] = [
    {"k": 1, "v": 0.0, "m": [("a", 1.5)]},
    {"k": 2, "v": None, "m": None},
    {"k": 2, "v": None, "m": None},
]
NAMES = ("k", "v", "m")


def test_the_same_rows_in_another_order_are_no_difference() -> None:
    assert not Expected(ROWS, NAMES).difference([*ROWS[1:], {"m": [{"key": "a", "value": 1.5}], "v": 0.0, "k": 1}])
    assert len(Expected(ROWS, NAMES)) == 3


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (ROWS[1:], "1 rows missing"),
        ([*ROWS, ROWS[0]], "1 rows too many"),
        (ROWS[:2], "1 rows missing"),
        ([{**ROWS[0], "v": -0.0}, *ROWS[1:]], "too many"),
        ([{**ROWS[0], "v": None}, *ROWS[1:]], "too many"),
        ([{**ROWS[0], "m": []}, *ROWS[1:]], "missing"),
    ],
)
def test_a_difference_is_seen(shown: list[dict[str, Any]], words: str) -> None:
    assert words in Expected(ROWS, NAMES).difference(shown)


def test_what_a_writer_did_not_know_stays() -> None:
    truth = Truth()
    truth.upsert([{"p": "", "k": 1, "a": 1, "b": 2}, {"p": "", "k": 1, "b": 3}, {"p": "", "k": 2, "a": 9}])
    truth.delete([("", 2), ("", 3)])
    assert list(truth.state.values()) == [{"p": "", "k": 1, "a": 1, "b": 3}]
    truth.append([{"r": 1}, {"r": 2}])
    truth.forget([2, 3])
    assert (truth.events, truth.deleted_events) == ([{"r": 1}], 1)
