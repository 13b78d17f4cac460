# SPDX-License-Identifier: Apache-2.0
"""Partition keys are asked about when a table is made: a round would find out too late."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from lakeward.errors import UnsupportedType
from lakeward_testing.lakes.suite import LakeSuite


@pytest.mark.parametrize("name", ["delta", "hudi", "lance"])
@pytest.mark.parametrize("kind", ["DOUBLE NOT NULL", "TIMESTAMP(6) NOT NULL", "DECIMAL(5, 2) NOT NULL"])
def test_a_type_that_cannot_be_a_partition_key_is_refused_before_anything_is_made(
    name: str, kind: str, tmp_path: Path
) -> None:
    lake = importlib.import_module(f"lakeward.lake.{name}.plugin").open_lake({"warehouse": str(tmp_path)})
    table = LakeSuite().table_info(columns={"id": "BIGINT", "part": kind}, partition_keys=("part",))
    for attempt in (lake.catalog().create, lambda t: lake.catalog().check_descriptor(t.path, t.descriptor)):
        with pytest.raises(UnsupportedType, match=r"partition key part: type .* allowed are BOOLEAN.*DATE"):
            attempt(table)
    assert not lake.catalog().exists(table.path)
