# SPDX-License-Identifier: Apache-2.0
"""The page of results: a section, a table and a chart for each benchmark that was run."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from bench.page import write_page
from bench.report import Report


def test_every_result_is_on_the_page_and_in_a_chart(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    report = Report("speed", folder=folder)
    report.add(
        "a | b", figure=2.0, unit="s", beside=4.0, beside_what="a peer", target="<= 1", note="half of it is waiting"
    )
    report.add("<c>", figure=3.0, unit="rows/s")
    report.finish()
    text = write_page(tmp_path).read_text()
    assert "0 of 1 targets met" in text
    assert "| a \\| b | 2 s | 4 s, a peer | 0.5 | figure <= 1 **missed** |" in text
    assert "- a | b: half of it is waiting" in text
    assert "](results/speed.svg)" in text
    chart = ElementTree.parse(folder / "speed.svg")
    bars = [e for e in chart.iter() if e.tag.endswith("rect")]
    assert len(bars) == 3


def test_without_results_the_page_says_how_to_get_them(tmp_path: Path) -> None:
    assert "make bench" in write_page(tmp_path).read_text()
