# SPDX-License-Identifier: Apache-2.0
"""Compactions against a dict: whatever comes between, each union read shows the same rows, and verify finds nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.spi.lake import LakeStorage
from tests.property.maintenance_program import MaintainedProgram, step
from tests.property.union_program import Step, iceberg_lake, memory_lake

programs = st.lists(step, min_size=4, max_size=14)


def run(steps: list[Step], open_lake: Callable[[Path], LakeStorage]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = MaintainedProgram(Path(folder), open_lake(Path(folder)))
        try:
            program.run(steps, program.read)
            program.check_certificate()
        finally:
            program.world.close()


@settings(max_examples=12)
@given(programs)
def test_no_reader_sees_a_compaction(steps: list[Step]) -> None:
    run(steps, memory_lake)


@settings(max_examples=4)
@given(programs)
def test_no_reader_sees_a_compaction_on_iceberg(steps: list[Step]) -> None:
    run(steps, iceberg_lake)


@pytest.mark.soak
@settings(max_examples=300)
@given(st.lists(step, min_size=4, max_size=30))
def test_long_programs_on_iceberg(steps: list[Step]) -> None:
    run(steps, iceberg_lake)
