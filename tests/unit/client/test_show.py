# SPDX-License-Identifier: Apache-2.0
"""What a table's sides look like beside its schema."""

from __future__ import annotations

from typing import Any

import pytest

from lakeward.client.show import spell_sides

SIDE: dict[str, Any] = {"side": "default", "state": "scheduled", "freshness_ms": 30_000, "lag_ms": 2_000}


@pytest.mark.parametrize(
    ("sides", "words"),
    [
        (None, "the server does not answer now"),
        ([], "in no lake"),
        ([SIDE], "freshness 30 s, lag 2.0 s, scheduled"),
        ([{**SIDE, "lag_ms": 31_000}], "freshness 30 s, lag 31.0 s (late), scheduled"),
        ([{**SIDE, "state": "disabled", "blocked": "cut off"}], "freshness 30 s, lag 2.0 s, disabled"),
        (
            [SIDE, {**SIDE, "side": "second", "state": "disabled"}],
            "default: freshness 30 s, lag 2.0 s, scheduled; second: in no lake",
        ),
    ],
)
def test_sides_in_words(sides: list[dict[str, Any]] | None, words: str) -> None:
    assert spell_sides(sides) == words
