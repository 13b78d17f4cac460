# SPDX-License-Identifier: Apache-2.0
"""Rows from files: JSON lines, CSV, Parquet, Arrow, in batches, so that a file of any size fits."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward.cli.jsonvalues import Convert, plan_converter
from lakeward.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.model.schema import Schema


class WriteFormat(StrEnum):
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


SUFFIXES = {
    ".json": WriteFormat.JSON,
    ".jsonl": WriteFormat.JSON,
    ".ndjson": WriteFormat.JSON,
    ".csv": WriteFormat.CSV,
    ".parquet": WriteFormat.PARQUET,
    ".arrow": WriteFormat.ARROW,
    ".arrows": WriteFormat.ARROW,
    ".feather": WriteFormat.ARROW,
}
JSON_LINES = 10_000
"""Lines read at a time: rows reach the server while the file is still being read."""


def format_of(file: str) -> WriteFormat:
    """By the file's name; standard input holds JSON lines unless told."""
    if file == "-":
        return WriteFormat.JSON
    found = SUFFIXES.get(Path(file).suffix.lower())
    if found is None:
        raise InvalidRequest(
            what=f"file {file}", reason=f"its format is not clear from its name; say --format {'|'.join(WriteFormat)}"
        )
    return found


def read_file(file: str, kind: WriteFormat, schema: Schema) -> Iterator[Any]:
    """Batches of the file's rows. `schema` says what JSON and CSV values are meant to be. Raises `InvalidRequest` with
    file and line.
    """
    from lakeward.model.arrow import to_arrow_type

    if file != "-" and not Path(file).is_file():
        raise InvalidRequest(what=f"file {file}", reason="there is no such file")
    types = {c.name: to_arrow_type(c.type) for c in schema.columns}
    if kind is WriteFormat.JSON:
        return _read_json(file, {name: plan_converter(found) for name, found in types.items()})
    return _read_arrow(file, kind, types)


def _read_json(file: str, converters: Mapping[str, Convert]) -> Iterator[list[dict[str, Any]]]:
    with nullcontext(sys.stdin) if file == "-" else Path(file).open(encoding="utf-8") as lines:
        rows: list[dict[str, Any]] = []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            rows.append(_row(line, f"{file}, line {number}", converters))
            if len(rows) == JSON_LINES:
                yield rows
                rows = []
        if rows:
            yield rows


def _row(line: str, where: str, converters: Mapping[str, Convert]) -> dict[str, Any]:
    try:
        row = json.loads(line, parse_float=Decimal)
    except ValueError as error:
        raise InvalidRequest(what=where, reason=f"no JSON: {error}") from error
    if not isinstance(row, dict):
        raise InvalidRequest(what=where, reason="a line is one JSON object")
    for name, value in row.items():
        if name in converters:
            try:
                row[name] = converters[name](value)
            except (ValueError, TypeError) as error:
                raise InvalidRequest(what=f"{where}, column {name}", reason=str(error)) from error
    return row


def _read_arrow(file: str, kind: WriteFormat, types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    source = sys.stdin.buffer if file == "-" else file
    try:
        if kind is WriteFormat.CSV:
            # Without types pyarrow guesses them from the first block, and a later one may not fit the guess.
            options = csv.ConvertOptions(column_types=_csv_types(types), include_missing_columns=False)
            for batch in csv.open_csv(source, convert_options=options):
                yield _from_text(batch, types, file)
        elif kind is WriteFormat.PARQUET:
            yield from pq.ParquetFile(pa.BufferReader(sys.stdin.buffer.read()) if file == "-" else file).iter_batches()
        else:
            yield from _arrow_batches(pa.BufferReader(sys.stdin.buffer.read()) if file == "-" else file)
    except (pa.ArrowException, OSError) as error:
        raise InvalidRequest(what=f"file {file}", reason=f"it cannot be read as {kind}: {error}") from error


def _is_text_in_csv(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _csv_types(types: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    import pyarrow as pa

    return {name: pa.string() if _is_text_in_csv(kind) else kind for name, kind in types.items()}


def _from_text(batch: pa.RecordBatch, types: Mapping[str, pa.DataType], file: str) -> pa.RecordBatch:
    """Lists, maps and bytes, which CSV does not have, come as in JSON; an empty field is a null there."""
    import pyarrow as pa

    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        kind = types.get(name)
        if kind is not None and _is_text_in_csv(kind):
            convert, is_bytes = plan_converter(kind), not pa.types.is_nested(kind)
            try:
                values = [
                    convert(v if is_bytes else json.loads(v, parse_float=Decimal)) if v else None
                    for v in column.to_pylist()
                ]
                column = pa.array(values, kind)
            except (ValueError, TypeError) as error:
                raise InvalidRequest(what=f"file {file}, column {name}", reason=str(error)) from error
        columns.append(column)
    return pa.record_batch(columns, names=batch.schema.names)


def _arrow_batches(source: Any) -> Iterator[pa.RecordBatch]:
    """A file with a footer, or a stream."""
    import pyarrow as pa

    opened = pa.OSFile(source) if isinstance(source, str) else source
    try:
        reader = pa.ipc.open_file(opened)
    except pa.ArrowInvalid:
        opened.seek(0)
        yield from pa.ipc.open_stream(opened)
        return
    for index in range(reader.num_record_batches):
        yield reader.get_batch(index)
