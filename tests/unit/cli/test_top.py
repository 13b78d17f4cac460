# SPDX-License-Identifier: Apache-2.0
"""The order of tables in `lakeward top`."""

from __future__ import annotations

from typing import Any

from lakeward.cli.top import worst_first


def table(path: str, **facts: Any) -> dict[str, Any]:
    return {"path": path, "state": "scheduled", "failures_in_a_row": 0, "lag_ms": 0, "freshness_ms": 1_000, **facts}


def test_the_worst_is_on_top_and_what_is_switched_off_below() -> None:
    tables = [
        table("off", state="disabled", lag_ms=10**9),
        table("well"),
        table("late", lag_ms=5_000),
        table("later", lag_ms=6_000),
        table("failing", failures_in_a_row=1),
    ]
    assert [t["path"] for t in worst_first(tables)] == ["failing", "later", "late", "well", "off"]
