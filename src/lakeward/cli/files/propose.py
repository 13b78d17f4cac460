# SPDX-License-Identifier: Apache-2.0
"""A table for a file's rows: columns, types and a key, detected over the whole file, and then tried: what
`lakeward write` would not take becomes text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb

from lakeward.cli.files.cellformat import CellFormat
from lakeward.cli.files.csvfile import DELIMITERS, OPEN_QUOTE, head_records, quoted, read_head
from lakeward.cli.files.csvguess import guess_columns
from lakeward.cli.files.filerows import BadText, FileShape, Place, Rejects
from lakeward.cli.files.lineends import with_one_line_end
from lakeward.cli.files.problems import Problem
from lakeward.cli.files.rowfiles import WriteFormat, read_arrow_table, read_file
from lakeward.errors import InvalidRequest
from lakeward.model import Column, Schema, StringType, from_arrow_schema, quote_name

_NUMBER = re.compile(r"\s*[+-]?[\d.]")
_KEY_NAME = re.compile(r"(?i:(^|[^a-z])(id|key|uuid|no|nr|number|code)$)|[a-z]I[dD]$")
_KEY_TYPES = ("BIGINT", "INT", "SMALLINT", "TINYINT", "STRING", "CHAR", "BINARY", "BYTES", "DECIMAL")


@dataclass(frozen=True)
class Proposal:
    """`key` None: no column looks like one, and holds a value of its own in each row."""

    columns: tuple[Column, ...]
    key: str | None
    rows: int
    notes: tuple[str, ...] = ()
    cells: CellFormat = field(default_factory=CellFormat)
    """How `write` has to read it."""

    @property
    def sql(self) -> str:
        return ", ".join(f"{quote_name(c.name)} {c.type}" for c in self.columns)


def propose(file: str, kind: WriteFormat, shape: FileShape | None = None) -> Proposal:
    """Reads the file whole, a few times. Raises `InvalidRequest`."""
    shape = shape or FileShape()
    if not Path(file).is_file():
        raise InvalidRequest(what=f"file {file}", reason="there is no such file")
    if kind is WriteFormat.CSV:
        return propose_csv(file, shape)
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        try:
            _show(connection, file, kind)
            schema = connection.execute("SELECT * FROM file LIMIT 0").to_arrow_table().schema
            columns = tuple(replace(c, type=c.type.with_nullable(True)) for c in from_arrow_schema(schema))
            texts = misfits(file, kind, columns, shape)
            columns = tuple(_as_text(c, texts) for c in columns)
            key, rows = find_key(connection, columns, "file")
        except duckdb.Error as error:
            raise InvalidRequest(what=f"file {file}", reason=f"it cannot be read as {kind}") from error
    return Proposal(columns, key, rows, text_notes(texts))


def propose_csv(file: str, shape: FileShape) -> Proposal:
    head, encoding = read_head(Path(file), shape.encoding)
    delimiter, first = find_delimiter(head, shape.delimiter)
    if not first:
        raise InvalidRequest(what=f"file {file}", reason="it is no CSV" if head.strip() else "it is empty")
    with (
        with_one_line_end(Path(file), delimiter, encoding) as source,
        duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection,
    ):
        try:
            cells = _csv_source(source, encoding, delimiter, first, shape)
            connection.execute(f"CREATE VIEW cells AS SELECT * FROM {cells}")  # noqa: S608 - quoted
            guess = guess_columns(connection, shape.cells)
            shape = replace(shape, cells=guess.cells)
            texts = {**guess.texts} | misfits(file, WriteFormat.CSV, guess.with_texts(guess.texts), shape)
            columns = guess.with_texts(texts)
            key, rows = find_key(connection, columns, "cells")
        except duckdb.Error as error:
            reason = "it cannot be read as CSV; --delimiter and --encoding say how it is written"
            raise InvalidRequest(what=f"file {file}", reason=reason) from error
    return Proposal(columns, key, rows, (*guess.notes, *text_notes(texts)), shape.cells)


def text_notes(texts: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{quote_name(name)} is text: {why}" for name, why in texts.items())


def _show(connection: Any, file: str, kind: WriteFormat) -> None:
    """The file as the view `file`."""
    if kind is WriteFormat.ARROW:
        connection.register("file", read_arrow_table(file))
    else:
        source = "read_parquet" if kind is WriteFormat.PARQUET else "read_json"
        more = "" if kind is WriteFormat.PARQUET else ", sample_size=-1, convert_strings_to_integers=false"
        connection.execute(f"CREATE VIEW file AS SELECT * FROM {source}({quoted(file)}{more})")  # noqa: S608 - quoted


def _csv_source(file: Path, encoding: str, delimiter: str, first: Sequence[str], shape: FileShape) -> str:
    header = is_header(first)
    nulls = ", ".join(map(quoted, ("", *shape.cells.nulls)))
    names = [n.strip() for n in first] if header else [f"c{i}" for i in range(1, len(first) + 1)]
    columns = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in names)
    stated = (
        f"header={str(header).lower()}, delim={quoted(delimiter)}, quote='\"', escape='\"', auto_detect=false, "
        f"columns={{{columns}}}, encoding={quoted(encoding)}, "
        f"nullstr=[{nulls}], ignore_errors=true, allow_quoted_nulls=false"
    )
    return f"read_csv({quoted(str(file))}, {stated})"


def find_delimiter(head: str, known: str | None = None) -> tuple[str, list[str]]:
    """The sign that cuts most of the first records into as many cells as the very first, and that first record."""
    best: tuple[int, str, list[str]] = (-1, ",", [])
    for delimiter in known or DELIMITERS:
        records = [r for r in islice(head_records(head, delimiter), 50) if r]
        if records:
            alike = sum(len(r) == len(records[0]) for r in records) * (len(records[0]) - 1)
            best = max(best, (alike, delimiter, records[0]), key=lambda found: found[0])
    return best[1], best[2]


def is_header(first: Sequence[str]) -> bool:
    cells = [c.strip() for c in first]
    return all(cells) and len(set(cells)) == len(cells) and not any(_NUMBER.match(c) for c in cells)


class _Misfits(Rejects):
    """Keeps the first reason of each column."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: dict[str, str] = {}

    def add(
        self, place: Place, value: str, reason: str, problem: Problem | None = None, row: BadText | None = None
    ) -> None:
        if reason == OPEN_QUOTE:
            self.refuse(place, reason)
        if place.at is not None and not place.at.isdigit():
            self.reasons.setdefault(place.at, f"{reason} ({place.short})")

    @property
    def is_skipping(self) -> bool:
        return True


def misfits(file: str, kind: WriteFormat, columns: tuple[Column, ...], shape: FileShape) -> dict[str, str]:
    """Columns that `write` would not take as they are proposed, and why."""
    found = _Misfits()
    if kind not in (WriteFormat.CSV, WriteFormat.JSON):
        return {}
    for _ in read_file(file, kind, Schema(columns=columns), shape, found):
        pass
    return found.reasons


def _as_text(column: Column, texts: dict[str, str]) -> Column:
    return replace(column, type=StringType()) if column.name in texts else column


def find_key(connection: Any, columns: Sequence[Column], view: str) -> tuple[str | None, int]:
    """The column that is named like a key, or the first one, where each row has a value of its own in it."""
    fitting = [c for c in columns if c.type.keyword in _KEY_TYPES]
    named = [c for c in fitting if _KEY_NAME.search(c.name)]
    tried = named + [c for c in fitting[:1] if c is columns[0] and c not in named]
    quoted_names = ['"' + c.name.replace('"', '""') + '"' for c in tried]
    counted = "".join(f", count(DISTINCT {name})" for name in quoted_names)
    rows, *distinct = connection.execute(f"SELECT count(*){counted} FROM {view}").fetchone()  # noqa: S608 - quoted
    keys = [c.name for c, count in zip(tried, distinct, strict=True) if rows > 1 and count == rows]
    return (keys[0] if keys else None), rows
