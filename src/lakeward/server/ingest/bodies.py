# SPDX-License-Identifier: Apache-2.0
"""Reads the rows in a request's body: JSON, JSON lines, CSV or an Arrow stream, plain or compressed.

A row that cannot be read becomes a `RowProblem`; the others go on.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as pa_csv

from lakeward.client.jsonvalues import Convert, plan_converter
from lakeward.errors import InvalidRequest, UnsupportedBody
from lakeward.hot.embedded.serve.declared import declared_bytes
from lakeward.model import Column, cast_column, parse_number, to_arrow_type

_ERRORS = (pa.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError)
_WHAT = "rows"


class RowFormat(StrEnum):
    JSON = "application/json"
    LINES = "application/x-ndjson"
    CSV = "text/csv"
    ARROW = "application/vnd.apache.arrow.stream"


_ALIASES = {"application/jsonl": RowFormat.LINES, "application/jsonlines": RowFormat.LINES}
_PACKED = ("gzip", "zstd")


@dataclass(frozen=True)
class RowProblem:
    """`row`: the row's place among all rows of the body, from 0. `column` is empty where the whole row is meant."""

    row: int
    column: str
    reason: str


class TornRow(NamedTuple):
    """A row of CSV that is not one. `column` is empty where the whole row is meant."""

    text: str
    column: str
    reason: str


@dataclass
class BodyRows:
    """`rows` are dicts or one Arrow table, `places` the place of each row in the body."""

    rows: list[dict[str, Any]] | pa.Table
    places: list[int]
    problems: list[RowProblem] = field(default_factory=list)

    def leave_out(self, places: Collection[int]) -> None:
        stays = [i for i, place in enumerate(self.places) if place not in places]
        if isinstance(self.rows, pa.Table):
            self.rows = self.rows.take(pa.array(stays, pa.int64()))
        else:
            self.rows = [self.rows[i] for i in stays]
        self.places = [self.places[i] for i in stays]


def find_format(content_type: str) -> RowFormat:
    """Raises `UnsupportedBody`."""
    name = content_type.partition(";")[0].strip().lower()
    try:
        return _ALIASES.get(name) or RowFormat(name)
    except ValueError:
        raise UnsupportedBody(header="Content-Type", value=name[:100], supported=", ".join(RowFormat)) from None


def unpack(body: bytes, encoding: str, limit: int) -> bytes:
    """Undoes the Content-Encoding; `limit` bounds the result. Raises `UnsupportedBody`, `InvalidRequest`."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return body
    if name not in _PACKED:
        raise UnsupportedBody(header="Content-Encoding", value=name[:100], supported=", ".join(_PACKED))
    try:
        with pa.input_stream(pa.BufferReader(body), compression=name) as stream:
            unpacked: bytes = stream.read(limit + 1)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidRequest(what=_WHAT, reason=f"the body is not {name}: {error}") from error
    if len(unpacked) > limit:
        raise InvalidRequest(what=_WHAT, reason=f"the body unpacks to more than {limit} bytes; send smaller requests")
    return unpacked


def read_body(body: bytes, kind: RowFormat, columns: Sequence[Column], limit: int) -> BodyRows:
    """The rows with their values in the types of these columns. Raises `InvalidRequest` where the body as a whole
    cannot be read."""
    if kind is RowFormat.ARROW:
        return _read_arrow(body, limit)
    if kind is RowFormat.CSV:
        return _read_csv(body, columns)
    values = _json_lines(body) if kind is RowFormat.LINES else _json_values(body)
    return _read_json(values, {c.name: plan_converter(to_arrow_type(c.type)) for c in columns})


# ---- JSON ------------------------------------------------------------------------------------------------------------
def _json_values(body: bytes) -> Iterator[Any]:
    try:
        value = json.loads(body, parse_float=parse_number)
    except ValueError as error:
        raise InvalidRequest(what=_WHAT, reason=f"the body is not JSON: {error}") from error
    yield from value if isinstance(value, list) else (value,)


def _json_lines(body: bytes) -> Iterator[Any]:
    for line in body.splitlines():
        if line.strip():
            try:
                yield json.loads(line, parse_float=parse_number)
            except ValueError as error:
                yield error


def _read_json(values: Iterator[Any], converters: Mapping[str, Convert]) -> BodyRows:
    read = BodyRows([], [])
    assert isinstance(read.rows, list)
    for place, value in enumerate(values):
        row = _convert_row(place, value, converters, read.problems)
        if row is not None:
            read.rows.append(row)
            read.places.append(place)
    return read


def _convert_row(
    place: int, value: Any, converters: Mapping[str, Convert], problems: list[RowProblem]
) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        reason = f"not JSON: {value}" if isinstance(value, ValueError) else "a row is one JSON object"
        problems.append(RowProblem(place, "", reason))
        return None
    row: dict[str, Any] = {}
    before = len(problems)
    for name, cell in value.items():
        try:
            row[name] = converters[name](cell) if name in converters else cell
        except _ERRORS as error:
            problems.append(RowProblem(place, name, str(error)))
    return row if len(problems) == before else None


# ---- CSV -------------------------------------------------------------------------------------------------------------
_OPEN_QUOTE = "the quote that begins the cell is never closed, so that it takes the rest of the body"


def _read_csv(body: bytes, columns: Sequence[Column]) -> BodyRows:
    """UTF-8 with a header line, comma and ISO values. An empty cell is null, a quoted empty one an empty text."""
    text, torn = read_csv_cells(body, columns)
    problems = [RowProblem(place, row.column, row.reason) for place, row in torn.items()]
    places = [place for place in range(text.num_rows + len(torn)) if place not in torn]
    kinds = {c.name: to_arrow_type(c.type) for c in columns}
    converted = [
        _convert_cells(name, text.column(name), kinds[name], places, problems) if name in kinds else text.column(name)
        for name in text.column_names
    ]
    rows = pa.table(converted, names=text.column_names)
    bad = {p.row for p in problems}
    if len(bad) > len(torn):
        rows = rows.filter(pa.array([place not in bad for place in places]))
        places = [place for place in places if place not in bad]
    return BodyRows(rows, places, problems)


def read_csv_cells(body: bytes, columns: Sequence[Column]) -> tuple[pa.Table, dict[int, TornRow]]:
    """The cells as texts; and the rows with the wrong number of cells or a quote that is never closed, by their places,
    which are not in them. Raises `InvalidRequest`."""
    torn: dict[int, TornRow] = {}
    last_cells: dict[int, int] = {}

    def skip(row: pa_csv.InvalidRow) -> str:
        reason = f"{row.actual_columns} cells, and the header names {row.expected_columns} columns"
        place = row.number - 2  # numbers count from 1, and the header is one
        torn[place] = TornRow(row.text, "", reason)
        last_cells[place] = row.actual_columns - 1
        return "skip"

    try:
        cells = pa_csv.read_csv(
            pa.BufferReader(body),
            read_options=pa_csv.ReadOptions(use_threads=False),
            parse_options=pa_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
            convert_options=pa_csv.ConvertOptions(
                column_types={c.name: pa.string() for c in columns},
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
            ),
        )
    except (pa.ArrowException, ValueError) as error:
        raise InvalidRequest(what=_WHAT, reason=f"the body is not CSV: {error}") from error
    names = cells.column_names
    check_names(names)
    last = max(torn, default=-1)
    if last == cells.num_rows + len(torn) - 1 and last_cells.get(last, len(names)) < len(names):
        if torn[last].text.count('"') % 2:
            torn[last] = TornRow(torn[last].text, names[last_cells[last]], _OPEN_QUOTE)
    elif cells.num_rows and _ends_open(body, cells.column(cells.num_columns - 1)[-1].as_py()):
        place = next(p for p in range(cells.num_rows + len(torn) - 1, -1, -1) if p not in torn)
        text = json.dumps(cells.slice(cells.num_rows - 1).to_pylist()[0], default=str)
        torn[place] = TornRow(text, names[-1], _OPEN_QUOTE)
        cells = cells.slice(0, cells.num_rows - 1)
    return cells, torn


def _ends_open(body: bytes, last_cell: Any) -> bool:
    """Whether the last cell begins with a quote that nothing closes. Arrow takes the rest of the body for that cell."""
    cell = b'"' + ("" if last_cell is None else str(last_cell)).encode().replace(b'"', b'""')
    return body.endswith(cell) and body[: -len(cell)][-1:] in (b",", b"\n", b"\r")


def check_names(names: Sequence[str]) -> None:
    """Raises `InvalidRequest` for a name that two columns have."""
    name, count = max(Counter(names).items(), key=lambda item: item[1], default=("", 0))
    if count > 1:
        raise InvalidRequest(what=_WHAT, reason=f"column {name[:100]!r} occurs {count:,} times; name each column once")


def _convert_cells(
    name: str, cells: pa.ChunkedArray, kind: pa.DataType, places: Sequence[int], problems: list[RowProblem]
) -> pa.ChunkedArray:
    if pa.types.is_string(kind):
        return cells
    convert = _plan_cell(kind)
    if convert is None:
        try:
            return cast_column(cells, kind)
        except _ERRORS:
            convert = lambda cell: cast_column(pa.array([cell], pa.string()), kind)[0].as_py()  # noqa: E731
    values: list[Any] = []
    for place, cell in zip(places, cells.to_pylist(), strict=True):
        try:
            values.append(None if cell is None else convert(cell))
        except _ERRORS as error:
            values.append(None)
            problems.append(RowProblem(place, name, str(error)))
    return pa.chunked_array([pa.array(values, kind)], type=kind)


def _plan_cell(kind: pa.DataType) -> Callable[[str], Any] | None:
    """None: Arrow's own cast from text reads such cells."""
    types = pa.types
    convert = plan_converter(kind)
    if types.is_nested(kind):
        return lambda cell: convert(json.loads(cell, parse_float=parse_number))
    if types.is_binary(kind) or types.is_fixed_size_binary(kind) or types.is_time(kind) or types.is_timestamp(kind):
        return convert
    return None


# ---- Arrow -----------------------------------------------------------------------------------------------------------
def _read_arrow(body: bytes, limit: int) -> BodyRows:
    if declared_bytes(body, _WHAT) > limit:
        raise InvalidRequest(what=_WHAT, reason=f"the body unpacks to more than {limit} bytes; send smaller requests")
    try:
        with pa.ipc.open_stream(pa.py_buffer(body)) as stream:
            rows = stream.read_all()
        rows.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidRequest(what=_WHAT, reason=f"the body is not an Arrow stream: {error}") from error
    check_names(rows.column_names)
    return BodyRows(rows, list(range(rows.num_rows)))
