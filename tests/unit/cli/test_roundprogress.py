# SPDX-License-Identifier: Apache-2.0
"""The line one sees while one waits for a round; and a job's log as JSON."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from lakeward.cli.roundprogress import describe_progress
from lakeward.tiering.job.arguments import JsonLines

STATUS: dict[str, Any] = {"path": "shop.orders", "waiting_rows": 1200, "state": "pending", "served": True, "work": []}
IDLE = {"kind": "tier", "job": None, "progress": None}
BUSY = {"kind": "tier", "job": "hand", "progress": {"phase": "write", "splits_done": 3, "splits_total": 8}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"work": [IDLE]}, "shop.orders: 1,200 rows wait; pending"),
        ({"work": [IDLE, BUSY]}, "shop.orders: 1,200 rows wait; hand is at tier, write 3/8 splits"),
        ({"work": [{**BUSY, "progress": None}]}, "shop.orders: 1,200 rows wait; hand is at tier, plan"),
        ({"served": False}, "shop.orders: 1,200 rows wait; pending, and no live job serves its pool"),
    ],
)
def test_where_a_round_stands(changes: dict[str, Any], words: str) -> None:
    assert describe_progress({**STATUS, **changes}) == words


def test_a_log_line_is_an_object() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("lakeward.tiering", logging.WARNING, "f", 1, "round %s", ("r",), sys.exc_info())
    text = JsonLines().format(record)
    line = json.loads(text)
    assert "\n" not in text
    assert (line["level"], line["from"], line["words"]) == ("warning", "lakeward.tiering", "round r")
    assert line["stack"].endswith("ValueError: two\nlines")
