# SPDX-License-Identifier: Apache-2.0
"""A table for a file's rows: columns, types and a key, found out by DuckDB over the whole file, and then tried: what
`lakeward write` would not take becomes text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb

from lakeward.cli.files.csvfile import DELIMITERS, head_records, quoted, read_head
from lakeward.cli.files.filerows import FileShape, Place, Rejects
from lakeward.cli.files.rowfiles import WriteFormat, read_arrow_table, read_file
from lakeward.errors import InvalidRequest
from lakeward.model.arrow import from_arrow_schema
from lakeward.model.schema import Column, Schema
from lakeward.model.types import StringType, quote_name

_NUMBER = re.compile(r"\s*[+-]?[\d.]")
_KEY_NAME = re.compile(r"(?i:(^|[^a-z])(id|key|uuid|no|nr|number|code)$)|[a-z]I[dD]$")
_KEY_TYPES = ("BIGINT", "INT", "SMALLINT", "TINYINT", "STRING", "CHAR", "BINARY", "BYTES", "DECIMAL")
_EXACT_DIGITS = 15
"""A double holds that many digits for sure."""


@dataclass(frozen=True)
class Proposal:
    """`key` None: no column looks like one, and holds a value of its own in each row."""

    columns: tuple[Column, ...]
    key: str | None
    rows: int
    notes: tuple[str, ...] = ()

    @property
    def sql(self) -> str:
        return ", ".join(f"{quote_name(c.name)} {c.type}" for c in self.columns)


def propose(file: str, kind: WriteFormat) -> Proposal:
    """Reads the file whole, twice. Raises `InvalidRequest`."""
    if not Path(file).is_file():
        raise InvalidRequest(what=f"file {file}", reason="there is no such file")
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        try:
            _show(connection, file, kind)
            schema = connection.execute("SELECT * FROM file LIMIT 0").to_arrow_table().schema
            columns = tuple(replace(c, type=c.type.with_nullable(True)) for c in from_arrow_schema(schema))
            texts = _inexact(connection, columns) if kind is WriteFormat.CSV else {}
            texts |= _misfits(file, kind, tuple(_as_text(c, texts) for c in columns))
            columns = tuple(_as_text(c, texts) for c in columns)
            key, rows = _find_key(connection, columns)
        except duckdb.Error as error:
            reason = f"it cannot be read as {kind}: {str(error).splitlines()[0]}"
            raise InvalidRequest(what=f"file {file}", reason=reason) from error
    notes = tuple(f"{quote_name(name)} is text: {why}" for name, why in texts.items())
    return Proposal(columns, key, rows, notes)


def _show(connection: Any, file: str, kind: WriteFormat) -> None:
    """The file as the view `file`, and CSV as the view `cells` too, every cell as it is written."""
    if kind is WriteFormat.CSV:
        source = _csv_source(Path(file))
        connection.execute(f"CREATE VIEW cells AS SELECT * FROM {source}, all_varchar=true)")  # noqa: S608 - quoted
        connection.execute(f"CREATE VIEW file AS SELECT * FROM {source}, sample_size=-1)")  # noqa: S608 - quoted
    elif kind is WriteFormat.ARROW:
        connection.register("file", read_arrow_table(file))
    else:
        source = "read_parquet" if kind is WriteFormat.PARQUET else "read_json"
        more = "" if kind is WriteFormat.PARQUET else ", sample_size=-1, convert_strings_to_integers=false"
        connection.execute(f"CREATE VIEW file AS SELECT * FROM {source}({quoted(file)}{more})")  # noqa: S608 - quoted


def _csv_source(file: Path) -> str:
    head, encoding = read_head(file, None)
    delimiter, first = find_delimiter(head)
    if not first:
        raise InvalidRequest(what=f"file {file}", reason="it is no CSV" if head.strip() else "it is empty")
    header = is_header(first)
    names = [n.strip() for n in first] if header else [f"c{i}" for i in range(1, len(first) + 1)]
    stated = (
        f"header={str(header).lower()}, delim={quoted(delimiter)}, quote='\"', escape='\"', skip=0, "
        f"names=[{', '.join(map(quoted, names))}], encoding={quoted(encoding)}, ignore_errors=true, "
        f"dateformat='%Y-%m-%d', allow_quoted_nulls=false"
    )
    return f"read_csv({quoted(str(file))}, {stated}"


def find_delimiter(head: str) -> tuple[str, list[str]]:
    """The sign that cuts most of the first records into as many cells as the very first, and that first record."""
    best: tuple[int, str, list[str]] = (-1, ",", [])
    for delimiter in DELIMITERS:
        records = [r for r in islice(head_records(head, delimiter), 50) if r]
        if records:
            alike = sum(len(r) == len(records[0]) for r in records) * (len(records[0]) - 1)
            best = max(best, (alike, delimiter, records[0]), key=lambda found: found[0])
    return best[1], best[2]


def is_header(first: Sequence[str]) -> bool:
    cells = [c.strip() for c in first]
    return all(cells) and len(set(cells)) == len(cells) and not any(_NUMBER.match(c) for c in cells)


def _inexact(connection: Any, columns: Sequence[Column]) -> dict[str, str]:
    """Columns of numbers that would lose something: zeros in front, as of postal codes, or digits at the end."""
    texts = {}
    for column in columns:
        if column.type.keyword not in ("BIGINT", "DOUBLE"):
            continue
        name = '"' + column.name.replace('"', '""') + '"'
        of_cell, of_double = _digits(name), _digits(f"CAST(TRY_CAST({name} AS DOUBLE) AS VARCHAR)")
        padded, digits = connection.execute(
            f"SELECT bool_or(regexp_matches({name}, '^\\s*[+-]?0[0-9]')), "  # noqa: S608 - quoted
            f"max(length({of_cell})) FILTER (WHERE {of_cell} IS DISTINCT FROM {of_double}) FROM cells"
        ).fetchone()
        if padded:
            texts[column.name] = "some of its numbers begin with zeros, which a number would lose"
        elif column.type.keyword == "DOUBLE" and (digits or 0) > _EXACT_DIGITS:
            texts[column.name] = f"some of its numbers have {digits} digits, more than a double holds"
    return texts


def _digits(cell: str) -> str:
    """In SQL. What a program wrote of a double has up to 17 of them, and is that double's own text."""
    return f"regexp_replace({cell}, '[eE].*|[^0-9]', '', 'g')"


class _Misfits(Rejects):
    """Keeps the first reason of each column."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: dict[str, str] = {}

    def add(self, place: Place, value: str, reason: str) -> None:
        if place.at is not None and not place.at.isdigit():
            self.reasons.setdefault(place.at, f"{reason} ({place.short})")

    @property
    def is_skipping(self) -> bool:
        return True


def _misfits(file: str, kind: WriteFormat, columns: tuple[Column, ...]) -> dict[str, str]:
    misfits = _Misfits()
    if kind not in (WriteFormat.CSV, WriteFormat.JSON):
        return {}
    for _ in read_file(file, kind, Schema(columns=columns), FileShape(), misfits):
        pass
    return misfits.reasons


def _as_text(column: Column, texts: dict[str, str]) -> Column:
    return replace(column, type=StringType()) if column.name in texts else column


def _find_key(connection: Any, columns: Sequence[Column]) -> tuple[str | None, int]:
    """The column that is named like a key, or the first one, where each row has a value of its own in it."""
    fitting = [c for c in columns if c.type.keyword in _KEY_TYPES]
    named = [c for c in fitting if _KEY_NAME.search(c.name)]
    tried = named + [c for c in fitting[:1] if c is columns[0] and c not in named]
    quoted_names = ['"' + c.name.replace('"', '""') + '"' for c in tried]
    counted = "".join(f", count(DISTINCT {name})" for name in quoted_names)
    rows, *distinct = connection.execute(f"SELECT count(*){counted} FROM file").fetchone()  # noqa: S608 - quoted
    keys = [c.name for c, count in zip(tried, distinct, strict=True) if rows > 1 and count == rows]
    return (keys[0] if keys else None), rows
