# SPDX-License-Identifier: Apache-2.0
"""Brings the rows of a body into a table's columns and types, in runs of rows that give the same columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from lakeward.client.routing import Router
from lakeward.client.rows import fit_rows, split_given
from lakeward.errors import InvalidRows
from lakeward.model import TableInfo
from lakeward.server.ingest.bodies import BodyRows, RowProblem

PLACE = "__place"
"""The column that carries a row's place in the body through routing. Columns of tables do not begin with `__`."""

MOST_PROBLEMS = 1_000
"""Rows of one request that may be refused while others are stored: looking for each of them takes time."""


class RowOp(StrEnum):
    APPEND = "append"
    UPSERT = "upsert"
    REPLACE = "replace"
    DELETE = "delete"


@dataclass(frozen=True)
class FittedRun:
    """Rows that are stored with the same columns. None: all columns of the table."""

    rows: pa.Table
    columns: tuple[str, ...] | None


def fit_body(read: BodyRows, table: TableInfo, op: RowOp, problems: list[RowProblem], each: bool) -> list[FittedRun]:
    """Raises `InvalidRows` for the first row that does not fit, or where each row counts for too many of them."""
    runs: list[FittedRun] = []
    for names, columns, rows, places in _same_columns(read, table, op):

        def fit(part: Any, part_places: Sequence[int], names: Sequence[str] = names) -> pa.Table:
            fitted = fit_rows(part, table, names)
            Router(table, turn=0).check(fitted)
            return fitted.append_column(PLACE, pa.array(part_places, pa.int64()))

        fitted = _fit_rows(rows, places, fit, problems, each)
        if len(problems) > MOST_PROBLEMS:
            raise first_problem(table, problems)
        if fitted is not None and fitted.num_rows:
            runs.append(FittedRun(fitted, columns))
    return runs


def _same_columns(
    read: BodyRows, table: TableInfo, op: RowOp
) -> list[tuple[Sequence[str], tuple[str, ...] | None, Any, list[int]]]:
    """Column names, the columns of a partial upsert, rows and their places: an upsert leaves columns that a row does
    not give as they are."""
    if op is RowOp.DELETE:
        return [(table.descriptor.primary_key, None, read.rows, read.places)]
    if op is not RowOp.UPSERT:
        return [(table.schema.names, None, read.rows, read.places)]
    return [
        (
            run.columns or table.schema.names,
            run.columns,
            run.rows,
            read.places[run.start : run.start + len(run.rows)],
        )
        for run in split_given(read.rows, table)
    ]


def _fit_rows(
    rows: Any,
    places: list[int],
    fit: Callable[[Any, Sequence[int]], pa.Table],
    problems: list[RowProblem],
    each: bool,
) -> pa.Table | None:
    """All rows at once; where some do not fit, by halves: a few bad rows among many cost a few more attempts."""
    try:
        return fit(rows, places)
    except InvalidRows as error:
        if not each:
            reason = f"{error.reason}; nothing is stored"
            raise InvalidRows(table=error.table, row=places[error.row], column=error.column, reason=reason) from error
        if len(places) == 1:
            problems.append(RowProblem(places[0], error.column, error.reason))
            return None
    half = len(places) // 2
    fitting = []
    for part in (slice(0, half), slice(half, None)):
        part_rows = rows.slice(part.start, len(places[part])) if isinstance(rows, pa.Table) else rows[part]
        if len(problems) <= MOST_PROBLEMS:
            fitted = _fit_rows(part_rows, places[part], fit, problems, each)
            fitting += [] if fitted is None else [fitted]
    return pa.concat_tables(fitting) if fitting else None


def first_problem(table: TableInfo, problems: Sequence[RowProblem]) -> InvalidRows:
    first = min(problems, key=lambda p: p.row)
    reason = f"{first.reason}; {len({p.row for p in problems})} rows are refused, and nothing is stored"
    return InvalidRows(table=str(table.path), row=first.row, column=first.column, reason=reason)
