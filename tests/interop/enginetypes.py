# SPDX-License-Identifier: Apache-2.0
"""Every type at several depths in a table of its own, as each engine reads it back; and the page that says so."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lakeward.changelog.rowdiff import altered_offsets
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import OFFSET, TYPES, TablePath, TypeRow, parse_type, to_arrow_type
from lakeward_testing.lakes import LakeRound
from lakeward_testing.lakes.suite import B0, LakeSuite
from lakeward_testing.scripted_log import Row

PARTS = tuple(row for row in TYPES if row.is_part)
"""Those that have every depth."""

PAGE = Path(__file__).parents[2] / "docs/readers.md"
BEGIN, END = (
    "<!-- types: tests/interop/test_types.py compares this table with what it reads -->",
    "<!-- end of types -->",
)
ENGINES = (
    "Lakeward",
    "PyIceberg 0.12",
    "DuckDB 1.5",
    "DataFusion 54",
    "Spark 4.3 through Lakeward",
    "Spark 4.1, Java Iceberg 1.12",
)
DEPTHS: Mapping[str, tuple[str, Callable[[Any], Any], Any]] = {
    "plain": ("{}", lambda v: v, None),
    "array": ("ARRAY<{}>", lambda v: [v, None], []),
    "map": ("MAP<STRING NOT NULL, {}>", lambda v: [("k", v), ("n", None)], []),
    "row": ("ROW<f {}>", lambda v: {"f": v}, {"f": None}),
    "rows": ("ARRAY<ROW<f {}>>", lambda v: [{"f": v}, {"f": None}], []),
}
"""Column -> its SQL type, a value of that depth, and the empty one."""


@dataclass(frozen=True)
class TypeTable:
    """A table with one type, and what its columns hold, with offsets."""

    name: str
    path: TablePath
    rows: pa.Table


def name_of(row: TypeRow) -> str:
    return type(row.example).__name__.removesuffix("Type")


def make_table(lake: IcebergLakeStorage, row: TypeRow) -> TypeTable:
    log = LakeSuite().make_log(lake, f"types_{name_of(row).lower()}", columns=columns_of(row))
    log.append(B0, *rows_of(row))
    LakeRound.plan(lake, log).run()
    return TypeTable(str(row.example), log.table.path, expected_of(row))


def columns_of(row: TypeRow) -> dict[str, str]:
    return {name: sql.format(str(row.example)) for name, (sql, _, _) in DEPTHS.items()}


def rows_of(row: TypeRow) -> list[Row]:
    """Each value, then a row of empty ones, then a row of nulls."""
    values = [{name: wrap(value) for name, (_, wrap, _) in DEPTHS.items()} for value in row.values]
    return [*values, {name: nothing for name, (_, _, nothing) in DEPTHS.items()}, dict.fromkeys(DEPTHS)]


def expected_of(row: TypeRow) -> pa.Table:
    """With offsets, as one bucket gives them."""
    fields = [pa.field(name, to_arrow_type(parse_type(sql))) for name, sql in columns_of(row).items()]
    records = [{**r, OFFSET: at} for at, r in enumerate(rows_of(row))]
    return pa.Table.from_pylist(records, schema=pa.schema([*fields, pa.field(OFFSET, pa.int64())]))


def judge(table: TypeTable, read: Callable[[TypeTable], pa.Table]) -> str:
    """A cell of the page: what the engine makes of the type."""
    try:
        found = read(table)
        altered = {n: set(altered_offsets(table.rows, found, [n])[0].tolist()) for n in DEPTHS}
    except Exception:  # noqa: BLE001 - whatever an engine raises
        return "**no**"
    if found.num_rows != table.rows.num_rows:
        return "**no**"
    wrong = [n for n, offsets in altered.items() if offsets]
    nulls = {n: set(np.flatnonzero(table.rows.column(n).is_null())) for n in wrong}
    what = "nulls" if all(altered[n] <= nulls[n] for n in wrong) else "values"
    return f"**{what} altered** in {', '.join(wrong)}" if wrong else "yes"


def render(cells: Mapping[str, Mapping[str, str]]) -> str:
    """Type -> engine -> cell, as the page has it."""
    head = [f"| type | {' | '.join(ENGINES)} |", f"|---|{'---|' * len(ENGINES)}"]
    lines = [f"| `{kind}` | {' | '.join(by_engine[e] for e in ENGINES)} |" for kind, by_engine in cells.items()]
    return "\n".join([BEGIN, "", *head, *lines, "", END])


def read_page() -> dict[str, dict[str, str]]:
    """Type -> engine -> cell."""
    section = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return {r[0].strip(" `"): dict(zip(ENGINES, (c.strip() for c in r[1:]), strict=True)) for r in rows}


def write_page(engine: str, cells: Mapping[str, str]) -> None:
    """Puts one engine's column into the page."""
    blank = {name: dict.fromkeys(ENGINES, "?") for name in (str(r.example) for r in PARTS)}
    known = {**blank, **read_page()}
    merged = {kind: {**known[kind], engine: cells[kind]} for kind in cells}
    text = PAGE.read_text()
    PAGE.write_text(text.partition(BEGIN)[0] + render(merged) + text.partition(END)[2])


def check_page(engine: str, tables: Sequence[TypeTable], read: Callable[[TypeTable], pa.Table]) -> None:
    cells = {table.name: judge(table, read) for table in tables}
    if os.environ.get("LAKEWARD_WRITE_PARTS"):
        write_page(engine, cells)
    assert {kind: by_engine[engine] for kind, by_engine in read_page().items()} == cells
