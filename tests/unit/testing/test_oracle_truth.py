# SPDX-License-Identifier: Apache-2.0
"""The oracle's comparison sees what differs: a row too many, too few, twice, or another by one bit."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from lakeward_testing.oracle.columns import FEWEST, MOST, Alteration, AlterationKind, PlayColumns
from lakeward_testing.oracle.past import play_forward
from lakeward_testing.oracle.stage import Different
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
    assert (truth.events, truth.deleted_events) == ([{"r": 1}], [{"r": 2}])


def test_a_column_that_a_reader_does_not_show_is_a_difference() -> None:
    shown = [{"k": row["k"], "v": None} for row in ROWS]
    assert Expected([{**row, "m": None} for row in ROWS], NAMES).difference(shown) == "rows without the columns m"


def test_columns_are_compared_by_today_s_names() -> None:
    columns = PlayColumns(["INT", "STRING", "FLOAT", "INT", "DATE"])
    for change in (
        Alteration(kind=AlterationKind.RENAME, column="c0", new="c9"),
        Alteration(kind=AlterationKind.DROP, column="c1"),
        Alteration(kind=AlterationKind.ADD, column="c0", new="BYTES"),
        Alteration(kind=AlterationKind.WIDEN, column="c9", new="BIGINT"),
    ):
        columns.apply(change)
    assert columns.by_name == {"c9": "BIGINT", "c2": "FLOAT", "c3": "INT", "c4": "DATE", "c0": "BYTES"}
    assert columns.first["c0"] == "INT"
    rows = [{"c0": 1, "c1": "dropped", "c5": b"x"}]
    expected = Expected(rows, list(columns.names.values()), list(columns.names))
    assert not expected.difference([{"c9": 1, "c2": None, "c3": None, "c4": None, "c0": b"x"}])


@pytest.mark.parametrize("seed", range(20))
def test_a_drawn_alteration_is_made_only_after_it_was_applied(seed: int) -> None:
    chance, columns = Random(seed), PlayColumns(["INT", "STRING", "FLOAT", "TINYINT", "DATE"])
    for _ in range(30):
        change = columns.draw(chance, ["INT", "BYTES"], adds_only=seed % 4 == 0)
        if change is not None:
            assert not change.is_made(columns.by_name), change
            columns.apply(change)
            assert change.is_made(columns.by_name), change
            assert FEWEST <= len(columns.names) <= MOST


def change(offset: int, kind: str, key: int, value: int) -> dict[str, Any]:
    return {"p": "", "k": key, "v": value, "__bucket": 0, "__offset": offset, "__change_type": kind}


HISTORY = [
    change(3, "delete", 2, 20),
    change(0, "insert", 1, 10),
    change(1, "insert", 2, 20),
    change(4, "update_before", 1, 10),
    change(5, "update_after", 1, 11),
]


def test_a_changelog_played_forward_is_the_table() -> None:
    assert [(row["k"], row["v"]) for row in play_forward(HISTORY, ("k", "v"))] == [(1, 11)]


@pytest.mark.parametrize(
    "wrong",
    [
        [*HISTORY, HISTORY[1]],
        HISTORY[1:],
        [*HISTORY[:3], change(4, "update_before", 1, 9), HISTORY[4]],
        [*HISTORY[:3], HISTORY[4]],
        [*HISTORY[:4], change(5, "insert", 3, 1)],
        [HISTORY[1], change(0, "insert", 2, 20)],
        [change(0, "delete", 1, 10)],
    ],
    ids=["twice", "not deleted", "another old image", "no old image", "no new image", "one address", "no row"],
)
def test_changes_that_do_not_fit_are_seen(wrong: list[dict[str, Any]]) -> None:
    try:
        shown = [(row["k"], row["v"]) for row in play_forward(wrong, ("k", "v"))]
    except Different:
        return
    assert shown != [(1, 11)]
