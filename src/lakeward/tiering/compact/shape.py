# SPDX-License-Identifier: Apache-2.0
"""A lake table's data files by size and by age, as they are and as a compaction would leave them: for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lakeward.spi import LakeFile
from lakeward.tiering.compact.plan import CompactionPlan

_MB = 1 << 20
_HOUR_MS = 3_600_000
SIZES = {"below 1 MB": _MB, "1 to 16 MB": 16 * _MB, "16 to 128 MB": 128 * _MB, "128 MB and more": None}
AGES = {"last hour": _HOUR_MS, "last day": 24 * _HOUR_MS, "last week": 7 * 24 * _HOUR_MS, "older": None}

_File = tuple[int, int]
"""Its size in bytes, and its age in milliseconds."""


def describe_shape(
    files: Iterable[LakeFile], plan: CompactionPlan, committed_at_ms: Mapping[int, int], now_ms: int
) -> dict[str, Any]:
    """`committed_at_ms`: of the snapshots that are kept, by their number; files of others are older than those. A file
    that a compaction writes has the age of the head."""
    oldest = min(committed_at_ms.values(), default=now_ms)
    sizes = {f.path: (f.size_bytes, now_ms - committed_at_ms.get(f.sequence, oldest)) for f in files}
    taken = {f.file.path for g in plan.groups for f in g.files}
    head_age = now_ms - max(committed_at_ms.values(), default=now_ms)
    after = [size for path, size in sizes.items() if path not in taken]
    after += [(sum(f.bytes for f in g.files), head_age) for g in plan.groups if g.rows]
    before = list(sizes.values())
    return {
        "sizes": _rows(SIZES, [size for size, _ in before], [size for size, _ in after]),
        "ages": _rows(AGES, [age for _, age in before], [age for _, age in after]),
        "deleted_rows": sum(g.deleted for g in plan.groups),
    }


def _rows(bounds: Mapping[str, int | None], before: list[int], after: list[int]) -> list[dict[str, Any]]:
    low, rows = 0, list[dict[str, Any]]()
    for name, high in bounds.items():
        counts = [sum(low <= n and (high is None or n < high) for n in numbers) for numbers in (before, after)]
        rows.append({"files": name, "before": counts[0], "after": counts[1]})
        low = high or low
    return rows
