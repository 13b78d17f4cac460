# SPDX-License-Identifier: Apache-2.0
"""All results on one page: writes bench/README.md and a chart for each benchmark from bench/results/*.json."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from bench.chart import draw

FOLDER = Path(__file__).parent
HEAD = """# Benchmarks

<!-- Written by `python -m bench.page`; do not edit. -->
`make bench` runs all of them, `make bench NAME=peers` one; both write this page anew. Each figure stands beside its
limit or a peer, measured in the same run unless it says otherwise. CPU seconds and peak memory count child processes
too. Data is made from a seed. Most take an environment variable for a small version, for instance
`LAKEWARD_BENCH_SCALE=0.05`.

`make bench-guard` runs five small ones in a minute or two, as ratios to a peer in the same run, and fails where one is
above 1.35 times the ratio on this page.

Charts: blue is our figure, red one that misses its target, grey what stands beside it; lengths by square root.
"""


def write_page(folder: Path = FOLDER) -> Path:
    """The page from what is in `results`. Benchmarks that were not run are not on it."""
    sections = [_section(folder, path) for path in sorted((folder / "results").glob("*.json"))]
    page = folder / "README.md"
    page.write_text("\n".join([HEAD, _machine(), *sections]))
    return page


def _machine() -> str:
    memory = psutil.virtual_memory().total / (1 << 30)
    return f"Last run on {os.cpu_count()} cores and {memory:.0f} GiB.\n"


def _section(folder: Path, path: Path) -> str:
    results: list[Mapping[str, Any]] = json.loads(path.read_text())
    chart = path.with_suffix(".svg")
    chart.write_text(draw(path.stem, results))
    missed = sum(r["met"] is False for r in results)
    judged = sum(r["met"] is not None for r in results)
    verdict = f"{judged - missed} of {judged} targets met" if judged else "no targets"
    return "\n".join(
        [
            f"## {path.stem}",
            "",
            f"{verdict}.",
            "",
            f"![{path.stem}](results/{chart.name})",
            "",
            *_table(results),
            "",
            *_notes(results),
        ]
    )


def _table(results: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = ["| case | figure | beside | ratio | target | CPU s | peak MB |", "|---|---|---|---|---|---|---|"]
    for r in results:
        target = "" if r["target"] is None else f"{r['target']} {'met' if r['met'] else '**missed**'}"
        cells = (
            r["case"],
            f"{r['figure']:g} {r['unit']}",
            r["beside"] or "",
            _number(r["ratio"]),
            target,
            _number(r["cpu_s"]),
            _number(r["peak_rss_mb"]),
        )
        lines.append("| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |")
    return lines


def _notes(results: Sequence[Mapping[str, Any]]) -> list[str]:
    noted = [f"- {r['case']}: {r['note']}" for r in results if r.get("note")]
    return [*noted, ""] if noted else []


def _number(value: float | None) -> str:
    return "" if not value else f"{value:g}"


if __name__ == "__main__":
    print(write_page())
