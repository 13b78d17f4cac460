# SPDX-License-Identifier: Apache-2.0
"""Sorting by offset, in memory and through files."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.model import OFFSET
from lakeward.tiering.write.sorting import sort_by_offset


def batches(count: int, size: int, seed: int = 1) -> list[pa.RecordBatch]:
    offsets = list(range(count))
    random.Random(seed).shuffle(offsets)
    cut = [offsets[at : at + size] for at in range(0, count, size)]
    return [pa.RecordBatch.from_pydict({"name": [f"n{o}" for o in part], OFFSET: part}) for part in cut]


@pytest.mark.parametrize(
    "budget", [1, 2_000, 50_000, 1 << 30], ids=["run-per-batch", "many-runs", "few-runs", "no-spill"]
)
def test_rows_come_out_in_offset_order(budget: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    out = pa.Table.from_batches(list(sort_by_offset(iter(batches(3_000, 70)), budget)))
    assert out.column(OFFSET).to_pylist() == list(range(3_000))
    assert out.column("name").to_pylist() == [f"n{o}" for o in range(3_000)]
    assert list(tmp_path.iterdir()) == [], "runs are removed"


def test_nothing_in_nothing_out() -> None:
    assert list(sort_by_offset(iter(()))) == []
