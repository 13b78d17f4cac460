# SPDX-License-Identifier: Apache-2.0
"""JSON files: an object on each line, or one array of objects."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from lakeward.cli.files.filerows import CHUNK_ROWS, FileRows, FileShape, Place, Rejects
from lakeward.cli.files.lineends import PACKED, open_bytes
from lakeward.client.jsonvalues import Convert
from lakeward.errors import InvalidRequest
from lakeward.model import parse_number

_BETWEEN = re.compile(r"[ \t\r\n,]*")
Numbered = tuple[int, str, Any]
"""A value of the file: its line, its text, and what it is."""


def read_json(file: str, converters: Mapping[str, Convert], shape: FileShape, rejects: Rejects) -> Iterator[FileRows]:
    """Rows reach the caller while the file is still being read, unless it is one array. Raises `InvalidRequest` with
    file, line and column, counted from 1."""
    with _text(file, shape) as text:
        read_part = _part_reader(file, text)
        rows: list[dict[str, Any]] = []
        places: list[int] = []
        for line, source, value in _values(file, text, rejects):
            row = _row(file, line, source, value, converters, shape, rejects)
            if row is None:
                continue
            rows.append(row)
            places.append(line)
            if len(rows) == CHUNK_ROWS:
                yield FileRows(rows, _placed(file, places), read_part())
                rows, places = [], []
        if rows:
            yield FileRows(rows, _placed(file, places), read_part())


def _part_reader(file: str, text: Any) -> Callable[[], float | None]:
    """How much of the file has been taken in. Nobody knows of standard input, nor of packed files by their text."""
    if file == "-" or Path(file).suffix.lower() in PACKED:
        return lambda: None
    size = max(1, Path(file).stat().st_size)
    return lambda: min(1.0, float(text.buffer.tell()) / size)


def _placed(file: str, lines: list[int]) -> Callable[[int], Place]:
    return lambda i: Place(file, "line", lines[i])


def _text(file: str, shape: FileShape) -> Any:
    if file == "-":
        return nullcontext(sys.stdin)
    return io.TextIOWrapper(open_bytes(Path(file)), encoding=shape.encoding or "utf-8-sig")


def _values(file: str, text: Iterable[str], rejects: Rejects) -> Iterator[Numbered]:
    for number, line in enumerate(_numbered(file, text), 1):
        if not line.strip():
            continue
        if number == 1 and line.lstrip().startswith("["):
            yield from _elements(file, "".join((line, *text)), rejects)
            return
        try:
            yield number, line, json.loads(line, parse_float=parse_number)
        except ValueError as error:
            _refuse(file, number, line, error, rejects)


def _numbered(file: str, text: Iterable[str]) -> Iterator[str]:
    number = 0
    try:
        for number, line in enumerate(text, 1):  # noqa: B007 - the number is for the error below
            yield line
    except UnicodeDecodeError as error:
        raise InvalidRequest(what=f"{file}, line {number + 1}", reason=f"it is not {error.encoding}") from error


def _elements(file: str, whole: str, rejects: Rejects) -> Iterator[Numbered]:
    """Elements of an array, one after the other."""
    decoder, at, line = json.JSONDecoder(parse_float=parse_number), whole.index("[") + 1, 1
    while True:
        between = _BETWEEN.match(whole, at)
        begin = at if between is None else between.end()
        line += whole.count("\n", at, begin)
        if whole[begin : begin + 1] in ("]", ""):
            return
        try:
            value, at = decoder.raw_decode(whole, begin)
        except ValueError as error:
            _refuse(file, getattr(error, "lineno", line), whole[begin : begin + 80], error, None)
            return
        yield line, whole[begin:at], value
        line += whole.count("\n", begin, at)


def _refuse(file: str, line: int, text: str, error: ValueError, rejects: Rejects | None) -> None:
    at = str(getattr(error, "colno", 1))
    place, reason = Place(file, "line", line, at), f"no JSON: {getattr(error, 'msg', error)}"
    if rejects is None:
        raise InvalidRequest(what=str(place), reason=reason) from error
    rejects.add(place, text.rstrip("\n"), reason)


def _row(
    file: str,
    line: int,
    source: str,
    value: Any,
    converters: Mapping[str, Convert],
    shape: FileShape,
    rejects: Rejects,
) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        rejects.add(Place(file, "line", line), source.strip(), "a row is one JSON object")
        return None
    row: dict[str, Any] = {}
    for field_name, cell in value.items():
        name = shape.renamed.get(field_name, field_name)
        try:
            row[name] = converters[name](cell) if name in converters else cell
        except (ValueError, TypeError) as error:
            text = json.dumps({shape.renamed.get(n, n): v for n, v in value.items()}, default=str)
            bad = (text if shape.renamed else source.strip(), "json")
            rejects.add(Place(file, "line", line, field_name), str(cell), str(error), row=bad)
            return None
    return row
