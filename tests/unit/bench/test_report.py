# SPDX-License-Identifier: Apache-2.0
"""The shape of a benchmark's results, which charts and the report rely on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import report
from bench.report import Report, is_met


def test_results_are_stored_in_the_agreed_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Report("sums", folder=tmp_path)
    with made.measure() as cost:
        assert sum(range(500_000)) > 0
    made.add(
        "half",
        figure=5.0,
        unit="rows/s",
        beside=10.0,
        beside_what="the raw limit",
        target=">= 0.6",
        of="ratio",
        cost=cost,
    )
    made.add("alone", figure=3.0, unit="ms", target="<= 4")
    made.add("plain", figure=3.0, unit="ms")
    rows = json.loads(made.finish().read_text())
    assert list(rows[0]) == [
        "case",
        "figure",
        "unit",
        "beside",
        "ratio",
        "target",
        "met",
        "cpu_s",
        "peak_rss_mb",
        "note",
    ]
    assert rows[0]["ratio"] == 0.5
    assert rows[0]["beside"] == "10 rows/s, the raw limit"
    assert [row["met"] for row in rows] == [False, True, None]
    assert rows[0]["cpu_s"] > 0
    assert rows[0]["peak_rss_mb"] > 1
    assert (
        "half: 5 rows/s | beside 10 rows/s, the raw limit | ratio 0.5 | ratio >= 0.6 MISSED" in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("value", "target", "met"),
    [(1, "<= 1", True), (1.1, "<= 1", False), (0.5, ">= 0.5", True), (1, "< 1", False), (2, "> 1", True)],
)
def test_targets(value: float, target: str, met: bool) -> None:
    assert is_met(value, target) is met


def test_an_unknown_name_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert report.run(["nope"]) == 2
    assert "startup" in capsys.readouterr().err
