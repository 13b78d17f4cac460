# SPDX-License-Identifier: Apache-2.0
"""Rows from files: JSON lines, CSV, Parquet, Arrow, in batches, so that a file of any size fits."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward.cli.files.csvfile import read_csv
from lakeward.cli.files.filerows import CHUNK_ROWS, FileRows, FileShape, Place, Rejects
from lakeward.cli.files.jsonfile import read_json
from lakeward.cli.files.lineends import PACKED
from lakeward.client.jsonvalues import plan_converter
from lakeward.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

    from lakeward.model import Schema


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
    ".tsv": WriteFormat.CSV,
    ".parquet": WriteFormat.PARQUET,
    ".arrow": WriteFormat.ARROW,
    ".arrows": WriteFormat.ARROW,
    ".feather": WriteFormat.ARROW,
}


def format_of(file: str) -> WriteFormat:
    """By the file's name; standard input holds JSON lines unless told."""
    if file == "-":
        return WriteFormat.JSON
    path = Path(file)
    write_format = SUFFIXES.get((path.with_suffix("") if path.suffix.lower() in PACKED else path).suffix.lower())
    if write_format is None:
        raise InvalidRequest(
            what=f"file {file}", reason=f"its format is not clear from its name; say --format {'|'.join(WriteFormat)}"
        )
    return write_format


def find_files(names: Sequence[str], *, may_be_empty: bool = False) -> list[str]:
    """Patterns as the files they match, in order of their names; a folder as the files in it that have rows."""
    files: list[str] = []
    for name in names:
        path = Path(name)
        if path.is_dir():
            row_files = sorted(str(p) for p in path.iterdir() if p.is_file() and _has_rows(p))
            files += row_files
            if not row_files and not may_be_empty:
                raise InvalidRequest(what=f"folder {name}", reason=f"no file in it ends in {', '.join(SUFFIXES)}")
        elif name != "-" and not path.exists() and any(c in name for c in "*?["):
            matched = sorted(glob(name, recursive=True))
            if not matched:
                raise InvalidRequest(what=f"files {name}", reason="none match")
            files += matched
        else:
            files.append(name)
    return files


def followed_size(file: str) -> int | None:
    """None for a file that is gone again. Raises `InvalidRequest` for a link out of its folder: those who may put files
    there need not be allowed to read what it names."""
    path = Path(file)
    try:
        target = path.resolve(strict=True)
        size = target.stat().st_size
    except OSError:
        return None
    if not target.is_relative_to(path.parent.resolve()):
        raise InvalidRequest(what=f"file {file}", reason="it is a link out of its folder, and is not read")
    return size


def _has_rows(path: Path) -> bool:
    plain = path.with_suffix("") if path.suffix.lower() in PACKED else path
    return plain.suffix.lower() in SUFFIXES and not path.name.startswith((".", "_"))


def read_file(
    file: str, kind: WriteFormat, schema: Schema, shape: FileShape | None = None, rejects: Rejects | None = None
) -> Iterator[FileRows]:
    """The file's rows in pieces. `schema` says what JSON and CSV values are meant to be. Raises `InvalidRequest` at the
    file's end, with all its problems; standard input stops at the first.
    """
    from lakeward.model import to_arrow_type

    shape, rejects = shape or FileShape(), rejects or Rejects()
    if file != "-" and not Path(file).is_file():
        raise InvalidRequest(what=f"file {file}", reason="there is no such file")
    types = {c.name: to_arrow_type(c.type) for c in schema.columns}
    if missing := [name for name in shape.renamed.values() if name not in types]:
        reason = f"the table has no column {', '.join(map(repr, missing))}; it has {', '.join(types)}"
        raise InvalidRequest(what="--columns", reason=reason)
    if kind is WriteFormat.JSON:
        converters = {name: plan_converter(column_type) for name, column_type in types.items()}
        rows = read_json(file, converters, shape, rejects)
    elif kind is WriteFormat.CSV:
        rows = _read_csv(file, types, shape, rejects)
    else:
        rows = _read_arrow(file, kind, shape)
    rejects.begin(file, shape.cells, is_endless=file == "-" and kind is not WriteFormat.CSV)
    return _then_problems(rows, rejects)


def _then_problems(rows: Iterator[FileRows], rejects: Rejects) -> Iterator[FileRows]:
    yield from rows
    rejects.raise_problems()


def _read_csv(file: str, types: Mapping[str, pa.DataType], shape: FileShape, rejects: Rejects) -> Iterator[FileRows]:
    if file != "-":
        yield from read_csv(Path(file), types, shape, rejects)
        return
    with tempfile.NamedTemporaryFile(suffix=".csv") as held:  # what it is must be found out before it is read
        shutil.copyfileobj(sys.stdin.buffer, held)
        held.flush()
        yield from read_csv(Path(held.name), types, shape, rejects, "standard input")


def _read_arrow(file: str, kind: WriteFormat, shape: FileShape) -> Iterator[FileRows]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        source = pa.BufferReader(sys.stdin.buffer.read()) if file == "-" else file
        parquet = pq.ParquetFile(source) if kind is WriteFormat.PARQUET else None
        batches = _arrow_batches(source) if parquet is None else parquet.iter_batches(CHUNK_ROWS)
        start = 1
        for batch in batches:
            shape.check_names(file, batch.schema.names)
            named = batch.rename_columns([shape.renamed.get(n, n) for n in batch.schema.names])
            part = None if parquet is None else (start - 1 + batch.num_rows) / max(1, parquet.metadata.num_rows)
            yield FileRows(named, _row_place(file, start), part)
            start += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise InvalidRequest(what=f"file {file}", reason=f"it cannot be read as {kind}: {error}") from error


def read_arrow_table(file: str) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_batches(_arrow_batches(file))


def _row_place(file: str, start: int) -> Callable[[int], Place]:
    return lambda i: Place(file, "row", start + i)


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
