# SPDX-License-Identifier: Apache-2.0
"""CSV as people have it, read by DuckDB as text: delimiter, header and encoding are found out; cells are converted
here, so that an error names line, column and value.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward.cli.files.filerows import CHUNK_ROWS, FileRows, FileShape, Place, Rejects
from lakeward.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

_LARGEST_CELL_BYTES = 1 << 30
csv.field_size_limit(_LARGEST_CELL_BYTES)
DELIMITERS = ",;\t|"
PACKED = {".gz": "gzip", ".zst": "zstd"}
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


def read_csv(file: Path, types: Mapping[str, pa.DataType], shape: FileShape, rejects: Rejects) -> Iterator[FileRows]:
    """Raises `InvalidRequest` with file, line and column."""
    import duckdb

    from lakeward.cli.files.csvtext import BadCell, convert_cells

    dialect = _sniff(file, list(types), shape)
    lines = _Lines(file, dialect)
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        try:
            query = _query(file, dialect, shape, is_skipping=rejects.is_skipping)
            reader = connection.execute(query).to_arrow_reader(CHUNK_ROWS)
            start, text_bytes, file_bytes = 0, 0, None if file.suffix.lower() in PACKED else file.stat().st_size
            for batch in reader:
                text_bytes += batch.nbytes - _OFFSET_BYTES * batch.num_columns * batch.num_rows
                part = None if not file_bytes else min(1.0, text_bytes / file_bytes)
                columns: list[pa.Array] = []
                bad: dict[int, tuple[str, BadCell]] = {}
                for name, text in zip(batch.schema.names, batch.columns, strict=True):
                    values, wrong = convert_cells(text, types[name], shape.date_format)
                    columns.append(values)
                    for cell in wrong:
                        bad.setdefault(cell.row, (name, cell))
                for row, (name, cell) in sorted(bad.items()):
                    rejects.add(Place(str(file), "line", lines.of(start + row), name), cell.value, cell.reason)
                yield replace(_rows(columns, batch.schema.names, bad, str(file), lines, start), part=part)
                start += batch.num_rows
            _reject_broken(connection, file, dialect, rejects)
        except duckdb.Error as error:
            raise _refusal(file, dialect, shape, error) from error


def _rows(
    columns: Sequence[Any], names: Sequence[str], bad: Mapping[int, Any], file: str, lines: _Lines, start: int
) -> FileRows:
    import pyarrow as pa

    batch = pa.record_batch(columns, names=list(names))
    kept = [i for i in range(batch.num_rows) if i not in bad] if bad else range(batch.num_rows)
    rows = batch.take(pa.array(kept, pa.int64())) if bad else batch
    return FileRows(rows, lambda i: Place(file, "line", lines.of(start + kept[i])))


def _query(file: Path, dialect: _Dialect, shape: FileShape, *, is_skipping: bool) -> str:
    nulls = ["", *([shape.null] if shape.null is not None else [])]
    options = {
        "auto_detect": "false",
        "header": str(dialect.header).lower(),
        "delim": quoted(dialect.delimiter),
        "quote": "'\"'",
        "escape": "'\"'",
        "columns": "{" + ", ".join(f"{quoted(n)}: 'VARCHAR'" for n in dialect.names) + "}",
        "nullstr": "[" + ", ".join(map(quoted, nulls)) + "]",
        "allow_quoted_nulls": "false",
        "encoding": quoted(dialect.encoding),
        "store_rejects": str(is_skipping).lower(),
    }
    stated = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"SELECT * FROM read_csv({quoted(str(file))}, {stated})"  # noqa: S608 - quoted


def _reject_broken(connection: Any, file: Path, dialect: _Dialect, rejects: Rejects) -> None:
    """Lines that are no records of this file: too many cells or too few, an open quote."""
    if not rejects.is_skipping:
        return
    for line, text, message in _broken(connection, file, dialect):
        rejects.add(Place(str(file), "line", line), text, _first_words(message))


def _broken(connection: Any, file: Path, dialect: _Dialect) -> Iterator[tuple[int, str, str]]:
    """With the line of the file: DuckDB counts records, and says at which byte of the text in UTF-8 one begins."""
    found = connection.execute(
        "SELECT DISTINCT line_byte_position, csv_line, error_message FROM reject_errors ORDER BY line_byte_position"
    ).fetchall()
    if not found:
        return
    line, at = 1, 0
    with open_bytes(file) as source, _as_text(source, dialect.encoding) as text:
        for position, record, message in found:
            while at < position - 1 and (passed := text.readline()):
                at += len(passed.encode(errors="surrogateescape"))
                line += 1
            yield line, record, message


def _refusal(file: Path, dialect: _Dialect, shape: FileShape, error: Exception) -> InvalidRequest:
    """Read once more, for the first line that is wrong."""
    import duckdb

    message = str(error)
    if "unicode" in message.lower():
        reason = f"a character is not {dialect.encoding}; say --encoding, as latin-1"
        return InvalidRequest(what=f"file {file}", reason=reason)
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        try:
            for _ in connection.execute(_query(file, dialect, shape, is_skipping=True)).to_arrow_reader(CHUNK_ROWS):
                pass
            line, text, message = next(_broken(connection, file, dialect))
            return InvalidRequest(
                what=str(Place(str(file), "line", line)), reason=f"{_first_words(message)} in {text[:80]!r}"
            )
        except (duckdb.Error, StopIteration):
            return InvalidRequest(what=f"file {file}", reason=_first_words(message))


def _first_words(message: str) -> str:
    """DuckDB's message without its advice about options of its own."""
    head = message.split("Possible ")[0]
    lines = [part for part in head.splitlines() if part and not part.startswith(("Invalid Input Error", "CSV Error"))]
    return "; ".join(line.strip() for line in lines)[:300] or "it is no CSV"


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


def open_bytes(file: Path) -> Any:
    """The file's bytes, unpacked where its name ends in .gz or .zst."""
    import pyarrow as pa

    return pa.input_stream(str(file), compression=PACKED.get(file.suffix.lower()))


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
