# SPDX-License-Identifier: Apache-2.0
"""A small bar chart as SVG, from the results of one benchmark: our figure, and what stood beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH, LEFT, BAR, GAP, TOP = 760, 330, 14, 10, 34
RIGHT = 130
OURS, BESIDE, MISSED = "#2563eb", "#9ca3af", "#dc2626"


def draw(name: str, results: Sequence[Mapping[str, Any]]) -> str:
    """One group of bars per result, each on a scale of its own: units differ. Text follows the page's own colour."""
    rows = [_row(r, TOP + n * (2 * BAR + GAP)) for n, r in enumerate(results)]
    height = TOP + len(results) * (2 * BAR + GAP) + 6
    style = (
        "text{font:12px "
        "system-ui,sans-serif;fill:#111}.t{font-weight:600;font-size:14px}@media(prefers-color-scheme:dark){text{fill:#eee}}"
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(name)}">'
    )
    return "\n".join(
        [head, f"<style>{style}</style>", f'<text class="t" x="4" y="18">{escape(name)}</text>', *rows, "</svg>", ""]
    )


def _row(result: Mapping[str, Any], y: int) -> str:
    figure, beside = float(result["figure"]), beside_of(result)
    most = max(abs(figure), abs(beside or 0.0)) or 1.0
    colour = MISSED if result["met"] is False else OURS
    label = escape(_cut(str(result["case"]), 52))
    parts = [
        f'<text x="4" y="{y + BAR}">{label}<title>{escape(str(result["case"]))}</title></text>',
        _bar(y, figure, most, colour, result["unit"]),
    ]
    if beside is not None:
        parts.append(_bar(y + BAR, beside, most, BESIDE, result["unit"]))
    return "\n".join(parts)


def _bar(y: int, value: float, most: float, colour: str, unit: str) -> str:
    """Lengths by square root, so that a thousandth is still seen."""
    length = max(1.0, (WIDTH - LEFT - RIGHT) * math.sqrt(abs(value) / most))
    text = f'<text x="{LEFT + length + 5:.0f}" y="{y + BAR - 3}">{value:g} {escape(unit)}</text>'
    return f'<rect x="{LEFT}" y="{y + 1}" width="{length:.1f}" height="{BAR - 3}" fill="{colour}"/>{text}'


def beside_of(result: Mapping[str, Any]) -> float | None:
    """The number that `beside` begins with."""
    return None if result["beside"] is None else float(str(result["beside"]).split(" ", 1)[0])


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
