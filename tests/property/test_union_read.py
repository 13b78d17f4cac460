# SPDX-License-Identifier: Apache-2.0
"""Union read against a dict and a list: random programs of writes, rounds, crashes and restarts; equal after every
step.

Two partitions that share bucket numbers and offsets are in every program."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakeward.spi import LakeStorage
from tests.property.union_program import (
    LOG,
    PK,
    Program,
    Rows,
    Step,
    delta_lake,
    hudi_lake,
    iceberg_lake,
    key,
    lance_lake,
    memory_lake,
    paimon_lake,
    step,
)

programs = st.lists(step, min_size=1, max_size=12)


def run(steps: list[Step], open_lake: Callable[[Path], LakeStorage]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = Program(Path(folder), open_lake(Path(folder)))
        try:
            program.run(steps, program.read)
        finally:
            program.world.close()


@settings(max_examples=settings().max_examples // 12)
@given(programs)
def test_a_union_read_equals_the_dict_after_every_step(steps: list[Step]) -> None:
    run(steps, memory_lake)


@settings(max_examples=settings().max_examples // 33)
@given(programs)
def test_the_same_on_iceberg(steps: list[Step]) -> None:
    run(steps, iceberg_lake)


@settings(max_examples=settings().max_examples // 50)
@given(programs)
def test_the_same_on_paimon(steps: list[Step]) -> None:
    run(steps, paimon_lake)


@settings(max_examples=settings().max_examples // 33)
@given(programs)
@example(
    [
        ("tier", None),
        ("upsert", [(("a", 0), "y")]),
        ("tier", None),
        ("compact", None),
        ("expire", None),
        ("delete", [("b", 0)]),
    ]
)
def test_the_same_on_delta(steps: list[Step]) -> None:
    run(steps, delta_lake)


@settings(max_examples=settings().max_examples // 50)
@given(programs)
@example(
    [
        ("upsert", [(("a", 0), "x"), (("b", 1), "x")]),
        ("tier", None),
        ("upsert", [(("a", 0), "y")]),
        ("tier", None),
        ("compact", None),
        ("expire", None),
        ("delete", [("b", 1)]),
    ]
)
def test_the_same_on_lance(steps: list[Step]) -> None:
    """Its own compaction puts rows of several buckets into one fragment."""
    run(steps, lance_lake)


@settings(max_examples=settings().max_examples // 50)
@given(programs)
@example(
    [
        ("upsert", [(("a", 0), "x"), (("b", 1), "x")]),
        ("tier", None),
        ("delete", [("b", 1)]),
        ("tier", None),
        ("compact", None),
        ("upsert", [(("b", 1), "y")]),
        ("tier", None),
        ("expire", None),
        ("delete", [("a", 0)]),
    ]
)
def test_the_same_on_hudi(steps: list[Step]) -> None:
    run(steps, hudi_lake)


@pytest.mark.soak
@settings(max_examples=300)
@given(st.lists(step, min_size=1, max_size=25))
def test_long_programs_on_iceberg(steps: list[Step]) -> None:
    run(steps, iceberg_lake)


@settings(max_examples=settings().max_examples // 20)
@given(programs, key, st.booleans())
def test_filters_and_projections_show_the_same_rows(
    steps: list[Step], wanted: tuple[str, int], is_pruned: bool
) -> None:
    """Partitions, buckets, files and row groups are left out by what is known of them, never a row that matches."""
    partition, number = wanted
    by_key = [("p", "=", partition), ("id", "=", number)] if is_pruned else [("id", ">=", number)]
    with tempfile.TemporaryDirectory() as folder:
        program = Program(Path(folder), iceberg_lake(Path(folder)))

        def read(path: str) -> Rows:
            filter = by_key if path == PK else [("p", "in", [partition, "nowhere"])]
            few: Rows = (
                program.world.read(path, filter=filter, columns=["v"], system_columns=True).to_table().to_pylist()
            )
            whole = program.world.read(path, system_columns=True).to_table()
            match = [r for r in whole.to_pylist() if _matches(r, path, partition, number, is_pruned)]
            address = ("v", "__bucket", "__offset")
            assert sorted((tuple(r[n] for n in address) for r in few), key=repr) == sorted(
                (tuple(r[n] for n in address) for r in match), key=repr
            )
            rows: Rows = whole.drop_columns(["__bucket", "__offset", "__timestamp"]).to_pylist()
            return rows

        try:
            program.run(steps, read)
        finally:
            program.world.close()


def _matches(row: dict[str, object], path: str, partition: str, number: int, is_pruned: bool) -> bool:
    if path == LOG:
        return row["p"] == partition
    return row["p"] == partition and row["id"] == number if is_pruned else int(str(row["id"])) >= number
