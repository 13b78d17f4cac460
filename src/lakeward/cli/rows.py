# SPDX-License-Identifier: Apache-2.0
"""`lakeward write`, `read`, `sql`: rows in and out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakeward.cli.connection import open_client
from lakeward.cli.output import Json, Server, Table, note, print_json, print_rows
from lakeward.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa


class WriteFormat(StrEnum):
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


class ReadFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
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


def register(app: typer.Typer) -> None:
    for command in (write, read, sql):
        app.command(command.__name__)(command)


def write(
    table: Table,
    file: Annotated[str, typer.Argument(help="JSON lines, CSV, Parquet or Arrow; - for standard input.")],
    format: Annotated[WriteFormat | None, typer.Option(help="The file's format; else from its name (JSON lines for -).")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="PK tables: rows name keys to delete.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Appends rows to a log table, or upserts them into a PK table. They are durable when this ends.

    Example: lakeward write shop.orders orders.jsonl"""
    kind = format or _format_of(file)
    with open_client(server) as client:
        target = client.table(table)
        put = target.delete if delete else target.upsert if target.info.is_pk else target.append
        rows, token = 0, None
        with _progress() as advance:
            for batch in read_file(file, kind):
                written = put(batch)
                token = written if token is None else token.merged(written)
                count = len(batch) if isinstance(batch, list) else batch.num_rows
                rows += count
                advance(count)
    if as_json:
        print_json({"table": table, "rows": rows, "token": str(token) if token else None})
    else:
        print(f"{rows:,} rows {'deleted from' if delete else 'written to'} {table}")


def read(
    table: Table,
    mode: Annotated[str, typer.Option(help="union, lake or hot.")] = "union",
    columns: Annotated[str | None, typer.Option(help="Columns, comma-separated.")] = None,
    as_of: Annotated[str | None, typer.Option(help="A lake snapshot id, or a date and time: history alone.")] = None,
    at_least: Annotated[str | None, typer.Option(help="A token that a write gave: read at least that.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Rows at the most.")] = None,
    format: Annotated[ReadFormat, typer.Option(help="table, json, csv or arrow (a stream).")] = ReadFormat.TABLE,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Reads a table: lake history plus hot tail. How fresh the rows are is said on standard error.

    Example: lakeward read shop.orders --limit 10"""
    from lakeward.read.arrow import describe_freshness

    chosen = [c.strip() for c in columns.split(",")] if columns else None
    with open_client(server) as client:
        result = client.read(table, columns=chosen, mode=mode, as_of=as_of, at_least=at_least)
        with result:
            write_rows(result.schema, _limited(result, limit), ReadFormat.JSON if as_json else format)
        note(describe_freshness(result.bound))


def sql(
    query: Annotated[str, typer.Argument(help="SQL over tables by name; a name with a dot is a Lakeward table.")],
    format: Annotated[ReadFormat, typer.Option(help="table, json, csv or arrow (a stream).")] = ReadFormat.TABLE,
    mode: Annotated[str, typer.Option(help="union, lake or hot.")] = "union",
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Runs a query with DuckDB over union reads.

    Example: lakeward sql "SELECT count(*) FROM shop.orders" """
    from lakeward.cli.sqlquery import run_sql

    with open_client(server) as client:
        result, notes = run_sql(client, query, mode)
        write_rows(result.schema, result.to_batches(), ReadFormat.JSON if as_json else format)
    for words in notes:
        note(words)


def read_file(file: str, kind: WriteFormat) -> Iterator[Any]:
    """Batches of the file's rows, constant memory. Raises `InvalidRequest` naming file and line."""
    if file != "-" and not Path(file).is_file():
        raise InvalidRequest(what=f"file {file}", reason="there is no such file")
    if kind is WriteFormat.JSON:
        return _read_json(file)
    return _read_arrow(file, kind)


def _read_json(file: str) -> Iterator[list[dict[str, Any]]]:
    with nullcontext(sys.stdin) if file == "-" else Path(file).open(encoding="utf-8") as lines:
        rows: list[dict[str, Any]] = []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InvalidRequest(what=f"{file}, line {number}", reason=f"no JSON: {error}") from error
            if not isinstance(row, dict):
                raise InvalidRequest(what=f"{file}, line {number}", reason="a line is one JSON object")
            rows.append(row)
            if len(rows) == JSON_LINES:
                yield rows
                rows = []
        if rows:
            yield rows


def _read_arrow(file: str, kind: WriteFormat) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    source = sys.stdin.buffer if file == "-" else file
    try:
        if kind is WriteFormat.CSV:
            yield from csv.open_csv(source)
        elif kind is WriteFormat.PARQUET:
            yield from pq.ParquetFile(sys.stdin.buffer.read() if file == "-" else file).iter_batches()
        else:
            yield from _arrow_batches(source)
    except pa.ArrowException as error:
        raise InvalidRequest(what=f"file {file}", reason=f"it cannot be read as {kind}: {error}") from error


def _arrow_batches(source: Any) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    try:
        with pa.ipc.open_file(source) as reader:
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)
    except (pa.ArrowInvalid, TypeError):
        yield from pa.ipc.open_stream(source)


def write_rows(schema: pa.Schema, batches: Any, format: ReadFormat) -> None:
    """To standard output."""
    if format is ReadFormat.ARROW:
        _write_arrow(schema, batches)
    elif format is ReadFormat.CSV:
        _write_csv(schema, batches)
    elif format is ReadFormat.JSON:
        for batch in batches:
            for row in batch.to_pylist():
                print(json.dumps(row, default=_json_value))
    else:
        print_rows(schema.names, (tuple(row.values()) for batch in batches for row in batch.to_pylist()), empty="no rows")


def _write_arrow(schema: pa.Schema, batches: Any) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(sys.stdout.buffer, schema) as out:
        for batch in batches:
            out.write_batch(batch)


def _write_csv(schema: pa.Schema, batches: Any) -> None:
    import pyarrow.csv as csv

    with csv.CSVWriter(sys.stdout.buffer, schema) as out:
        for batch in batches:
            out.write_batch(batch)


def _json_value(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else str(value)


def _limited(batches: Any, limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        if left <= 0:
            return
        yield batch.slice(0, left)
        left -= batch.num_rows


def _format_of(file: str) -> WriteFormat:
    if file == "-":
        return WriteFormat.JSON
    found = SUFFIXES.get(Path(file).suffix.lower())
    if found is None:
        raise InvalidRequest(what=f"file {file}", reason=f"its format is not clear from its name; say --format {'|'.join(WriteFormat)}")
    return found


class _progress:
    """A bar on standard error while rows are written; silent where that is no terminal."""

    def __enter__(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(file=sys.stderr)
        self.bar = Progress(TextColumn("writing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console, transient=True)
        self.bar.disable = not console.is_terminal
        self.bar.start()
        task = self.bar.add_task("rows", total=None)
        return lambda rows: self.bar.advance(task, rows)

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
