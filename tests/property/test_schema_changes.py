# SPDX-License-Identifier: Apache-2.0
"""Columns that change while rows come, against a model by column id: union reads and lakes agree after every step."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.spi import LakeStorage, load_lake
from tests.property.schema_program import SchemaProgram
from tests.property.test_maintenance import iceberg_lake
from tests.property.union_program import memory_lake

seeds = st.integers(0, 2**32)


def warehouse_of(format: str) -> Callable[[Path], LakeStorage]:
    return lambda folder: load_lake(format, {"warehouse": str(folder / "lake")})


def run(seed: int, open_lake: Callable[[Path], LakeStorage], steps: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake = open_lake(Path(folder))
        program = SchemaProgram(Path(folder), lake, seed, lake.capabilities.column_changes)
        try:
            program.run(steps)
        finally:
            program.world.close()


@settings(max_examples=15)
@given(seeds)
def test_columns_change_while_rows_come(seed: int) -> None:
    run(seed, memory_lake, 14)


@settings(max_examples=4)
@given(seeds)
def test_columns_change_while_rows_come_on_iceberg(seed: int) -> None:
    run(seed, iceberg_lake, 14)


@pytest.mark.parametrize("format", ["delta", "hudi", "lance", "paimon"])
@settings(max_examples=2)
@given(seeds)
def test_columns_change_while_rows_come_in_every_format(format: str, seed: int) -> None:
    run(seed, warehouse_of(format), 10)


@pytest.mark.soak
@pytest.mark.parametrize("format", ["delta", "hudi", "iceberg", "lance", "paimon"])
@settings(max_examples=40)
@given(seeds)
def test_long_programs_of_changes(format: str, seed: int) -> None:
    run(seed, iceberg_lake if format == "iceberg" else warehouse_of(format), 40)
