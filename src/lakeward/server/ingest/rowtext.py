# SPDX-License-Identifier: Apache-2.0
"""The text of single rows of a body as it came, and the columns that a body has and its table has not."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakeward.errors import UnsupportedType
from lakeward.model import BooleanType, Column, DataType, Float64Type, Int64Type, StringType, from_arrow_field
from lakeward.server.ingest.bodies import BodyRows, RowFormat, read_csv_cells

_LARGEST_INTEGER = 1 << 63


def row_texts(body: bytes, kind: RowFormat, columns: Sequence[Column], places: Collection[int]) -> dict[int, str]:
    """Place -> text, of a body that `read_body` has read. A CSV row is a JSON object of its cells; one with the wrong
    number of cells is its line."""
    if kind is RowFormat.CSV:
        return _csv_texts(body, columns, places)
    texts = _line_texts(body) if kind is RowFormat.LINES else _value_texts(body.decode())
    return {place: text for place, text in enumerate(texts) if place in places}


def _line_texts(body: bytes) -> Iterator[str]:
    return (line.decode(errors="replace") for line in body.splitlines() if line.strip())


def _value_texts(text: str) -> Iterator[str]:
    at = len(text) - len(text.lstrip())
    if not text.startswith("[", at):
        yield text.strip()
        return
    decoder = json.JSONDecoder()
    while True:
        at += 1
        at += len(text[at:]) - len(text[at:].lstrip()) if text[at : at + 1].isspace() else 0
        if text.startswith("]", at):
            return
        _, end = decoder.raw_decode(text, at)
        yield text[at:end]
        at = end
        while text[at : at + 1].isspace():
            at += 1
        if not text.startswith(",", at):
            return


def _csv_texts(body: bytes, columns: Sequence[Column], places: Collection[int]) -> dict[int, str]:
    cells, torn = read_csv_cells(body, columns)
    whole = [place for place in range(cells.num_rows + len(torn)) if place not in torn]
    chosen = [(index, place) for index, place in enumerate(whole) if place in places]
    rows = cells.take(pa.array([index for index, _ in chosen], pa.int64())).to_pylist()
    texts = {place: json.dumps(row, default=str) for (_, place), row in zip(chosen, rows, strict=True)}
    return texts | {place: row.text for place, row in torn.items() if place in places}


# ---- columns that a table has not ------------------------------------------------------------------------------------
def unknown_columns(read: BodyRows, names: Collection[str]) -> list[Column]:
    """With the types of their values, nullable. A name whose values are all null, or of no one type, is left out: the
    rows that give it are refused by name."""
    if isinstance(read.rows, pa.Table):
        fields = [f for f in read.rows.schema if f.name not in names]
        types: Mapping[str, DataType | None] = {f.name: _cell_type(f) for f in fields}
    else:
        values: dict[str, list[Any]] = {}
        for row in read.rows:
            for name in row:
                if name not in names:
                    values.setdefault(name, []).append(row[name])
        types = {name: value_type(values_of_name) for name, values_of_name in values.items()}
    return [Column(name=name, type=kind) for name, kind in types.items() if kind is not None and _is_name(name)]


def without_null_names(read: BodyRows, names: Collection[str]) -> None:
    """Takes unknown names without a value from JSON rows: they say nothing."""
    if not isinstance(read.rows, pa.Table):
        for row in read.rows:
            for name in [n for n, value in row.items() if value is None and n not in names]:
                del row[name]


def value_type(values: Sequence[Any]) -> DataType | None:
    """The column type of JSON values. Nested values have none here."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return BooleanType()
    if kinds == {str}:
        return StringType()
    if kinds and kinds <= {int, float, Decimal}:
        fits = kinds == {int} and all(v is None or -_LARGEST_INTEGER <= v < _LARGEST_INTEGER for v in values)
        return Int64Type() if fits else Float64Type()
    return None


def _cell_type(field: pa.Field) -> DataType | None:
    if pa.types.is_null(field.type):
        return None
    try:
        return from_arrow_field(field).with_nullable(True)
    except UnsupportedType:
        return None


def _is_name(name: str) -> bool:
    return bool(name) and name == name.strip() and not name.startswith("__") and len(name) <= 255 and "\x00" not in name
