# SPDX-License-Identifier: Apache-2.0
"""Rows that deletes leave, whatever way they are picked."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakeward.lake.iceberg.scan.project import keep_rows


@pytest.mark.parametrize("count", [1, 7, 8_191, 8_192, 20_001])
def test_rows_that_live_are_kept_in_order(count: int) -> None:
    ids = np.arange(count)
    texts = pa.array([f"city-{i % 3}" for i in range(count)], pa.string()).dictionary_encode()
    rows = pa.table({"id": pa.chunked_array([ids[: count // 2], ids[count // 2 :]]), "city": texts})
    keep = np.random.default_rng(count).random(count) < 0.9
    kept = keep_rows(rows, keep)
    assert kept.schema == rows.schema
    assert kept.column("id").to_pylist() == ids[keep].tolist()
    assert kept.column("city").to_pylist() == [f"city-{i % 3}" for i in ids[keep]]
