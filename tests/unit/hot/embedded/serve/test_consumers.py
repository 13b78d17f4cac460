# SPDX-License-Identifier: Apache-2.0
"""Consumers: how far each is, whatever it says of itself."""

from __future__ import annotations

import pytest

from lakeward.hot.embedded.serve import consumers
from lakeward.hot.embedded.serve.consumers import Consumers, count_reached
from lakeward.model import Bucket, TableId
from lakeward.spi import LogBounds

A, B = Bucket("", 0), Bucket("", 1)
BOUNDS = {A: LogBounds(start=10, end=30), B: LogBounds(start=0, end=5)}


def test_what_is_reached_lies_within_the_logs() -> None:
    assert count_reached({A: 20, B: 5}, BOUNDS) == 25
    assert count_reached({}, BOUNDS) == 10
    assert count_reached({A: 10**18, B: -7, Bucket("gone", 0): 9}, BOUNDS) == 30


def test_a_consumer_is_one_line_of_its_table() -> None:
    held, table = Consumers(), TableId("t")
    assert held.read_at(table) is None
    held.note(table, "ann", "10.0.0.1:5", 3)
    held.note(table, "ann", "10.0.0.1:5", 8)
    held.note(table, "bob", "10.0.0.2:5", 1)
    assert sorted((c.who, c.reached) for c in held.of_table(table)) == [("ann", 8), ("bob", 1)]
    assert held.of_table(TableId("other")) == []
    assert held.read_at(table) is not None


def test_consumers_are_bounded() -> None:
    held, table = Consumers(), TableId("t")
    for n in range(consumers.MOST + 3):
        held.note(table, "ann", str(n), 0)
    assert len(held.of_table(table)) == consumers.MOST
    held.note(table, "ann", "7", 5)
    assert [c.reached for c in held.of_table(table) if c.peer == "7"] == [5], "those that are held go on"


@pytest.mark.soak
def test_a_million_consumers_are_bounded() -> None:
    """A look at all that are held with each question would take an hour."""
    held, table = Consumers(), TableId("t")
    for n in range(1_000_000):
        held.note(table, "ann", str(n), 0)
    assert len(held.of_table(table)) == consumers.MOST
