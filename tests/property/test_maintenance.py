# SPDX-License-Identifier: Apache-2.0
"""Compactions against a dict: whatever comes between, each union read shows the same rows, and verify finds nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakeward.model import SYSTEM_COLUMNS_PROPERTY
from lakeward.spi import LakeStorage, load_lake
from tests.property.maintenance_program import MaintainedProgram, step
from tests.property.union_program import Rows, Step, memory_lake, paimon_lake

VERSION = "iceberg.format-version"


def iceberg_lake(folder: Path) -> LakeStorage:
    """Its locations are URLs, as DataFusion wants them."""
    where = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    return load_lake("iceberg", {"type": "sql", **where})


programs = st.lists(step, min_size=4, max_size=14)
versions = st.sampled_from(("2", "3"))
REWRITTEN: list[Step] = [("tier", None), ("compact", None), ("upsert", [(("a", 0), "y")]), ("merge", None)]
"""Another engine's rewrite, which few short programs hold, then rounds and a compaction of ours upon it."""


def run(
    steps: list[Step],
    open_lake: Callable[[Path], LakeStorage],
    version: str = "2",
    *,
    closely: bool = False,
    clean: bool = False,
) -> None:
    """`closely`: other engines are asked after every step, not at the end alone."""
    with tempfile.TemporaryDirectory() as folder:
        properties = {VERSION: version, **({SYSTEM_COLUMNS_PROPERTY: "false"} if clean else {})}
        program = MaintainedProgram(Path(folder), open_lake(Path(folder)), **properties)

        def read(path: str) -> Rows:
            if closely:
                program.check_engines()
            return program.read(path)

        try:
            program.run(steps, read)
            program.check_engines()
            program.check_certificate()
        finally:
            program.world.close()


@settings(max_examples=8)
@given(programs)
def test_no_reader_sees_a_compaction(steps: list[Step]) -> None:
    run(steps, memory_lake)


@settings(max_examples=3)
@given(programs, versions)
@example(REWRITTEN, "3")
def test_no_reader_sees_a_compaction_on_iceberg(steps: list[Step], version: str) -> None:
    run(steps, iceberg_lake, version)


@settings(max_examples=2)
@given(programs, versions)
@example(REWRITTEN, "3")
def test_no_reader_sees_a_compaction_of_a_clean_table(steps: list[Step], version: str) -> None:
    """Without system columns rows of the log are told by their files' offsets, those of the PK table by their keys."""
    run(steps, iceberg_lake, version, clean=True)


@settings(max_examples=2)
@given(programs, st.booleans())
def test_no_reader_sees_a_compaction_on_paimon(steps: list[Step], clean: bool) -> None:
    run(steps, paimon_lake, clean=clean)


@pytest.mark.soak
@settings(max_examples=100)
@given(st.lists(step, min_size=4, max_size=30), st.booleans())
def test_long_programs_on_paimon(steps: list[Step], clean: bool) -> None:
    run(steps, paimon_lake, closely=True, clean=clean)


@pytest.mark.soak
@settings(max_examples=100)
@given(st.lists(step, min_size=4, max_size=30), versions)
def test_long_programs_on_clean_tables(steps: list[Step], version: str) -> None:
    run(steps, iceberg_lake, version, closely=True, clean=True)


@pytest.mark.soak
@settings(max_examples=300)
@given(st.lists(step, min_size=4, max_size=30), versions)
def test_long_programs_on_iceberg(steps: list[Step], version: str) -> None:
    run(steps, iceberg_lake, version, closely=True)
