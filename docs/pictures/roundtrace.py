# SPDX-License-Identifier: Apache-2.0
"""Draws the trace of one real round, as a collector gets it: `python -m docs.pictures.roundtrace`. A server and a job run
in a temporary folder, the spans arrive over OTLP on loopback."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.server.test_observe import Collector, run_round

PICTURE = Path(__file__).parent / "roundtrace.svg"
WIDTH, LEFT, ROW, TOP = 760, 190, 28, 40
FONT = "font-family='sans-serif' font-size='13'"


def collect() -> list[Any]:
    """The spans of one round, its root first."""
    collector = Collector()
    try:
        with tempfile.TemporaryDirectory() as folder:
            run_round(Path(folder), collector.url, f"{collector.url}/lineage", lambda: bool(roots(collector)))
        root = roots(collector)[0]
        return [root, *(s for s in collector.spans() if s.parent_span_id == root.span_id)]
    finally:
        collector.http.shutdown()
        collector.http.server_close()


def roots(collector: Collector) -> list[Any]:
    with_rows = [s for s in collector.spans() if any(a.key == "lakeward.rows" for a in s.attributes)]
    return [s for s in with_rows if not s.parent_span_id]


def draw(spans: list[Any]) -> str:
    start, end = spans[0].start_time_unix_nano, max(s.end_time_unix_nano for s in spans)
    scale = (WIDTH - LEFT - 90) / (end - start)
    height = TOP + ROW * len(spans) + 10
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' role='img'>",
        "<rect width='100%' height='100%' fill='#ffffff'/>",
        f"<text x='12' y='22' {FONT} fill='#333'>one trace: {spans[0].trace_id.hex()}</text>",
    ]
    for number, span in enumerate(spans):
        y, took = TOP + ROW * number, span.end_time_unix_nano - span.start_time_unix_nano
        x = LEFT + (span.start_time_unix_nano - start) * scale
        width, indent = max(2.0, took * scale), 12 if not number else 28
        lines += [
            f"<text x='{indent}' y='{y + 18}' {FONT} fill='#333'>{span.name}</text>",
            f"<rect x='{x:.1f}' y='{y + 5}' width='{width:.1f}' height='18' fill='{'#3f51b5' if number else '#7986cb'}'/>",
            f"<text x='{x + width + 6:.1f}' y='{y + 18}' {FONT} fill='#555'>{took / 1e6:,.1f} ms</text>",
        ]
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(draw(collect()))
