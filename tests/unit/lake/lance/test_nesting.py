# SPDX-License-Identifier: Apache-2.0
"""Shapes of nesting that the library cannot read back are refused; those beside them are written and read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lakeward.errors import LakeUnreadable, UnsupportedType
from lakeward.lake.lance.rows import LanceRows
from lakeward.lake.lance.storage import LanceLakeStorage
from lakeward.lake.lance.table import LanceTable, fragments_of
from lakeward.lake.tablefiles import LocalFiles
from lakeward.model import Column, parse_type
from lakeward.spi import LakeStorage
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite

SUITE = LakeSuite()


@pytest.fixture
def lake(tmp_path: Path) -> LakeStorage:
    return LanceLakeStorage(str(tmp_path))


@pytest.mark.parametrize(
    "kind",
    [
        "ARRAY<ROW<a ARRAY<MAP<STRING NOT NULL, INT>>>>",
        "MAP<STRING NOT NULL, ROW<a INT, b ROW<c ARRAY<ROW<d ARRAY<STRING>>>>>>",
        "ROW<x ARRAY<ARRAY<ROW<a ARRAY<ARRAY<INT>>>>>>",
    ],
)
def test_a_shape_that_cannot_be_read_is_refused_with_the_way_out(lake: LakeStorage, kind: str) -> None:
    table, catalog = SUITE.table_info(columns={"id": "BIGINT NOT NULL", "v": kind}), lake.catalog()
    for refused in (lambda: catalog.check_descriptor(table.path, table.descriptor), lambda: catalog.create(table)):
        with pytest.raises(UnsupportedType, match="store the value as JSON in a STRING"):
            refused()
    flat = SUITE.table_info()
    catalog.create(flat)
    added = Column(name="v", type=parse_type(kind))
    for refused in (lambda: catalog.check_alter(flat, [added], {}), lambda: catalog.add_columns(flat, [added])):
        with pytest.raises(UnsupportedType, match=r"contract\.t\.v"):
            refused()
    catalog.validate(flat)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("ARRAY<ARRAY<MAP<STRING NOT NULL, ARRAY<INT>>>>", [[], [None], [[], None, [[("a", [None])], []]]]),
        ("ROW<a ARRAY<ARRAY<ARRAY<INT>>>>", [None, {"a": None}, {"a": [[], None, [[], None, [1, None]]]}]),
        ("ARRAY<ROW<a ROW<b ARRAY<INT>>>>", [[], [None], [{"a": None}, {"a": {"b": []}}, {"a": {"b": [None]}}]]),
        (
            "MAP<STRING NOT NULL, ARRAY<ROW<a ARRAY<INT>, b INT>>>",
            [[], [("k", None)], [("k", [None, {"a": [], "b": 1}])]],
        ),
    ],
)
def test_a_shape_beside_it_comes_back(lake: LakeStorage, kind: str, values: list[Any]) -> None:
    log = SUITE.make_log(lake, columns={"id": "BIGINT NOT NULL", "v": kind})
    log.append(B0, *({"id": n, "v": value} for n, value in enumerate(values)))
    LakeRound.plan(lake, log).run()
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_a_table_that_has_such_a_column_is_read_without_it(tmp_path: Path) -> None:
    """One that was made before it was refused: what the library says does not reach people untyped."""
    kind = pa.list_(pa.struct([("a", pa.list_(pa.list_(pa.int32())))]))
    root = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1, 2], "v": pa.array([[], [None]], kind)}), root)
    table = LanceTable(LocalFiles(), root, "shop.t")
    dataset = table.open(1)
    rows, fragments = LanceRows(table, dataset, ()), fragments_of(dataset)
    with pytest.raises(LakeUnreadable, match=r"shop\.t .* cannot read"):
        list(rows.read(fragments, dataset.schema))
    (part,) = rows.read(fragments, pa.schema([dataset.schema.field("id")]))
    assert part.column("id").to_pylist() == [1, 2]
