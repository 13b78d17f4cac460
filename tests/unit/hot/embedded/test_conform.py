# SPDX-License-Identifier: Apache-2.0
"""Batches as the table stores them, whatever columns their writer knew."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakeward.errors import InvalidRows
from lakeward.hot.embedded.conform import conform

NESTED = pa.field("tags", pa.list_(pa.field("item", pa.string(), nullable=False)))
KNOWN = pa.record_batch({"id": pa.array([1, 2], pa.int64())})


@pytest.mark.parametrize("added", [pa.field("v", pa.string()), NESTED], ids=["plain", "nested"])
def test_a_column_that_came_later_is_null_for_writers_that_do_not_know_it(added: pa.Field) -> None:
    stored = pa.schema([*KNOWN.schema, added])
    assert conform(KNOWN, stored, "db.t").to_pylist() == [{"id": 1, added.name: None}, {"id": 2, added.name: None}]


def test_a_column_that_must_not_be_null_is_not_left_out() -> None:
    with pytest.raises(InvalidRows, match="v: the column is missing and must not be null"):
        conform(KNOWN, pa.schema([*KNOWN.schema, pa.field("v", pa.string(), nullable=False)]), "db.t")
