# SPDX-License-Identifier: Apache-2.0
"""CSV as people have it, read by DuckDB as text: delimiter, header and encoding are found out; cells are converted
here, so that an error names line, column and value.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward.cli.files.csvshapes import load_is_comma_file
from lakeward.cli.files.filerows import CHUNK_ROWS, FileRows, FileShape, Place, Rejects
from lakeward.cli.files.lineends import PACKED, open_bytes, with_one_line_end
from lakeward.cli.files.problems import Problem
from lakeward.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

_LARGEST_CELL_BYTES = 1 << 30
csv.field_size_limit(_LARGEST_CELL_BYTES)
DELIMITERS = ",;\t|"
_SNIFFED_BYTES = 1 << 20
_OFFSET_BYTES = 3
"""Arrow has 4 bytes beside a text, the file a delimiter: what is left is about what the file holds."""


@dataclass(frozen=True)
class _Dialect:
    """`names`: the file's columns in order, by the table's names. `header`: its first record says them."""

    delimiter: str
    encoding: str
    header: bool
    names: tuple[str, ...]

    @property
    def python_encoding(self) -> str:
        return "utf-8-sig" if self.encoding == "utf-8" else self.encoding


def read_csv(
    file: Path, types: Mapping[str, pa.DataType], shape: FileShape, rejects: Rejects, shown: str | None = None
) -> Iterator[FileRows]:
    """Rows that can be taken; the others go to `rejects`. Raises `InvalidRequest` for a file that is no such CSV.
    `shown`: its name for people."""
    import duckdb

    dialect = _sniff(file, list(types), shape)
    with (
        with_one_line_end(file, dialect.delimiter, dialect.encoding) as source,
        duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection,
    ):
        reading = _Reading(connection, source, shown or str(file), dialect, shape, types)
        try:
            reading.look()
            yield from reading.rows(rejects, is_tolerant=rejects.is_skipping)
        except duckdb.Error as error:
            if rejects.is_skipping or not reading.is_line_error(error):
                raise reading.refusal(error) from error
        else:
            return
        rejects.begin(reading.shown, shape.cells)  # again from its begin, for all that is wrong
        try:
            for _ in reading.rows(rejects, is_tolerant=True):
                pass
        except duckdb.Error as error:
            raise reading.refusal(error) from error


_QUOTE = "UNQUOTED VALUE"
OPEN_QUOTE = "a quote that is never closed"


class _Reading:
    """One file, open in DuckDB."""

    def __init__(
        self, connection: Any, path: Path, shown: str, dialect: _Dialect, shape: FileShape, types: Mapping[str, Any]
    ) -> None:
        self.connection, self.path, self.shown, self.dialect = connection, path, shown, dialect
        self.shape, self.types = shape, types
        self.lines = _Lines(path, dialect)
        self.is_comma_file = False

    def look(self) -> None:
        """Before the first row is given out: whether a number may mean two things."""
        fractions = [n for n in self.dialect.names if _is_fraction(self.types[n])]
        if fractions and not self.shape.cells.is_known:
            source = f"({self._query(is_tolerant=True)})"
            self.is_comma_file = load_is_comma_file(self.connection, source, fractions, self.dialect.names)

    def rows(self, rejects: Rejects, *, is_tolerant: bool) -> Iterator[FileRows]:
        """Raises DuckDB's errors; where it is tolerant, lines that are no records go to `rejects`."""
        from lakeward.cli.files.csvtext import BadCell, convert_cells

        reader = self.connection.execute(self._query(is_tolerant=is_tolerant)).to_arrow_reader(CHUNK_ROWS)
        start, text_bytes = 0, 0
        file_bytes = None if self.path.suffix.lower() in PACKED else self.path.stat().st_size
        for batch in reader:
            text_bytes += batch.nbytes - _OFFSET_BYTES * batch.num_columns * batch.num_rows
            part = None if not file_bytes else min(1.0, text_bytes / file_bytes)
            columns: list[pa.Array] = []
            bad: dict[int, list[tuple[str, BadCell]]] = {}
            for name, text in zip(batch.schema.names, batch.columns, strict=True):
                values, wrong = convert_cells(
                    text, self.types[name], self.shape.cells, is_comma_file=self.is_comma_file
                )
                columns.append(values)
                for cell in wrong:
                    bad.setdefault(cell.row, []).append((name, cell))
            for row, cells in sorted(bad.items()):
                for name, cell in cells[:1] if rejects.is_skipping else cells:
                    place = Place(self.shown, "line", self.lines.of(start + row), name)
                    text = json.dumps(batch.slice(row, 1).to_pylist()[0])
                    rejects.add(place, cell.value, cell.problem.reason, cell.problem, (text, "csv"))
            yield replace(_rows(columns, batch.schema.names, bad, self.shown, self.lines, start), part=part)
            start += batch.num_rows
        if is_tolerant:
            for line, column, text, words in self._broken():
                place = Place(self.shown, "line", line, column)
                rejects.add(place, text, words, Problem(words, f"{words} in {text[:80]!r}"))

    def is_line_error(self, error: Exception) -> bool:
        """Whether a read that passes over broken lines gets through."""
        return "unicode" not in str(error).lower()

    def refusal(self, error: Exception) -> InvalidRequest:
        if "unicode" in str(error).lower():
            reason = f"a character is not {self.dialect.encoding}; say --encoding, as latin-1"
        else:
            reason = "it cannot be read as CSV; --delimiter and --encoding say how it is written"
        return InvalidRequest(what=f"file {self.shown}", reason=reason)

    def _query(self, *, is_tolerant: bool) -> str:
        options = {
            "auto_detect": "false",
            "header": str(self.dialect.header).lower(),
            "delim": quoted(self.dialect.delimiter),
            "quote": "'\"'",
            "escape": "'\"'",
            "columns": "{" + ", ".join(f"{quoted(n)}: 'VARCHAR'" for n in self.dialect.names) + "}",
            "nullstr": "[" + ", ".join(map(quoted, ("", *self.shape.cells.nulls))) + "]",
            "allow_quoted_nulls": "false",
            "encoding": quoted(self.dialect.encoding),
            "store_rejects": str(is_tolerant).lower(),
        }
        stated = ", ".join(f"{name}={value}" for name, value in options.items())
        return f"SELECT * FROM read_csv({quoted(str(self.path))}, {stated})"  # noqa: S608 - quoted

    def _broken(self) -> Iterator[tuple[int, str | None, str, str]]:
        """Line of the file, column of a quote that is never closed, record, problem. DuckDB counts records, and says at
        which byte of the text in UTF-8 one begins."""
        broken_rows = self.connection.execute(
            "SELECT DISTINCT line_byte_position, csv_line, error_type::VARCHAR, error_message, column_name "
            "FROM reject_errors WHERE scan_id = (SELECT max(scan_id) FROM reject_errors) ORDER BY line_byte_position"
        ).fetchall()
        if not broken_rows:
            return
        line, at = 1, 0
        with open_bytes(self.path) as source, _as_text(source, self.dialect.encoding) as text:
            for position, record, kind, message, column in broken_rows:
                while at < position - 1 and (passed := text.readline()):
                    at += len(passed.encode(errors="surrogateescape"))
                    line += 1
                words = _line_problem(kind, message, record)
                yield line, column if words == OPEN_QUOTE else None, record, words


def _line_problem(kind: str, message: str, record: str) -> str:
    if (counts := re.search(r"Columns: (\d+) Found: (\d+)", message)) is not None:
        cells = "cell" if counts[2] == "1" else "cells"
        return f"{counts[2]} {cells} where {counts[1]} are expected"
    if kind == _QUOTE:
        return OPEN_QUOTE if record.count('"') % 2 else "text behind a closed quote"
    problems = {
        "LINE SIZE OVER MAXIMUM": "a record of more than 2 MB, as where a quote is not closed",
        "INVALID ENCODING": "a character of another encoding",
    }
    return problems.get(kind, "no record of this file")


def _is_fraction(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _rows(
    columns: Sequence[Any], names: Sequence[str], bad: Mapping[int, Any], file: str, lines: _Lines, start: int
) -> FileRows:
    import pyarrow as pa

    batch = pa.record_batch(columns, names=list(names))
    kept = [i for i in range(batch.num_rows) if i not in bad] if bad else range(batch.num_rows)
    rows = batch.take(pa.array(kept, pa.int64())) if bad else batch
    return FileRows(rows, lambda i: Place(file, "line", lines.of(start + kept[i])))


# ---- what the file is ------------------------------------------------------------------------------------------------
def _sniff(file: Path, known: Sequence[str], shape: FileShape) -> _Dialect:
    head, encoding = read_head(file, shape.encoding)
    target = {**{name: name for name in known}, **shape.renamed}
    tried = [shape.delimiter] if shape.delimiter else list(DELIMITERS)
    firsts = {d: next(head_records(head, d), []) for d in tried}
    delimiter = next((d for d, first in firsts.items() if first and all(n.strip() in target for n in first)), None)
    if delimiter is not None:
        shape.check_names(str(file), [n.strip() for n in firsts[delimiter]])
        names = tuple(target[n.strip()] for n in firsts[delimiter])
        _check_once(file, names)
        return _Dialect(delimiter, encoding, True, names)
    delimiter = max(tried, key=lambda d: len(firsts[d]))
    first = firsts[delimiter]
    if not any(n.strip() in target for n in first) and len(first) == len(known):
        shape.check_names(str(file), first)
        return _Dialect(delimiter, encoding, False, tuple(known))
    if not first:
        raise InvalidRequest(what=f"{file}, line 1", reason="it is no CSV" if head.strip() else "the file is empty")
    unknown = [f"{n!r:.60}" for n in first if n.strip() not in target]
    reason = (
        f"the table has no column {', '.join(unknown)}; it has {', '.join(known)}. "
        f"--columns 'IN FILE=IN TABLE' renames, --delimiter tells how cells are parted"
    )
    raise InvalidRequest(what=f"{file}, line 1", reason=reason)


def head_records(head: str, delimiter: str) -> Iterator[list[str]]:
    """Records of a file's beginning, as far as it is CSV."""
    try:
        yield from csv.reader(io.StringIO(head, newline=""), delimiter=delimiter)
    except csv.Error:
        return


def _check_once(file: Path, names: Sequence[str]) -> None:
    doubled = sorted({n for n in names if list(names).count(n) > 1})
    if doubled:
        raise InvalidRequest(what=f"{file}, line 1", reason=f"column {', '.join(doubled)} is there more than once")


def read_head(file: Path, encoding: str | None) -> tuple[str, str]:
    """A text file's beginning as text, and its encoding by DuckDB's name of it."""
    try:
        with open_bytes(file) as source:
            raw = source.read(_SNIFFED_BYTES)
            is_wide = raw[:2] in (b"\xff\xfe", b"\xfe\xff")
            name = encoding or ("utf-16" if is_wide else "utf-8" if _is_utf8(raw, source) else "latin-1")
    except OSError as error:
        raise InvalidRequest(what=f"file {file}", reason=str(error)) from error
    return raw.decode("utf-8-sig" if name == "utf-8" else name, errors="ignore"), name


def _is_utf8(head: bytes, rest: Any) -> bool:
    """To its end: one character of another encoding may stand anywhere."""
    decoder, part = codecs.getincrementaldecoder("utf-8")(), head
    try:
        while part:
            decoder.decode(part)
            part = rest.read(_SNIFFED_BYTES)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _as_text(source: Any, encoding: str) -> io.TextIOWrapper:
    """For counting lines: a character that is not of this encoding is somebody else's to refuse."""
    return io.TextIOWrapper(source, encoding=encoding, newline="", errors="surrogateescape")


class _Lines:
    """On which line a record begins. Read again only when asked, and forwards as far as it can."""

    def __init__(self, file: Path, dialect: _Dialect) -> None:
        self._file, self._dialect = file, dialect
        self._starts: Iterator[int] = iter(())
        self._record, self._line = -1, 0

    def of(self, record: int) -> int:
        if record < self._record or self._record < 0:
            self._starts, self._record = self._read(), -1
        while self._record < record:
            self._line = next(self._starts, self._line)
            self._record += 1
        return self._line

    def _read(self) -> Iterator[int]:
        with open_bytes(self._file) as source, _as_text(source, self._dialect.python_encoding) as text:
            reader = csv.reader(text, delimiter=self._dialect.delimiter)
            before, width = 0, len(self._dialect.names)
            for number, record in enumerate(reader):
                is_record = len(record) == width or (width == 1 and not record)
                if is_record and not (self._dialect.header and number == 0):
                    yield before + 1
                before = reader.line_num


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
