# SPDX-License-Identifier: Apache-2.0
"""Columns that change while rows come, against a model by column id: union reads and lakes agree after every step."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.spi import LakeStorage
from tests.property.schema_program import SchemaProgram
from tests.property.test_maintenance import iceberg_lake
from tests.property.union_program import memory_lake

seeds = st.integers(0, 2**32)


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
