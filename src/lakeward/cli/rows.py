# SPDX-License-Identifier: Apache-2.0
"""`lakeward write`, `read`, `sql`: rows in and out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import typer

from lakeward.cli.connection import open_client
from lakeward.cli.output import Json, Server, Table, note, print_json
from lakeward.cli.rowfiles import WriteFormat, format_of, read_file
from lakeward.cli.rowprint import ReadFormat, take, write_rows


class Mode(StrEnum):
    UNION = "union"
    LAKE = "lake"
    HOT = "hot"


def register(app: typer.Typer) -> None:
    for command in (write, read, sql):
        app.command(command.__name__)(command)


def write(
    table: Table,
    file: Annotated[str, typer.Argument(help="JSON lines, CSV, Parquet or Arrow; - for standard input.")],
    format: Annotated[
        WriteFormat | None, typer.Option(help="The file's format; else from its name (JSON lines for -).")
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="PK tables: rows name keys to delete.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Appends rows to a log table, or upserts them into a PK table. They are durable when this ends.

    Example: lakeward write shop.orders orders.jsonl"""
    kind = format or format_of(file)
    with open_client(server) as client:
        target = client.table(table)
        put = target.delete if delete else target.upsert if target.info.is_pk else target.append
        rows, token = 0, None
        with _progress() as advance:
            for batch in read_file(file, kind, target.info.schema):
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
    mode: Annotated[Mode, typer.Option(help="union: lake history plus hot tail; or one side alone.")] = Mode.UNION,
    columns: Annotated[str | None, typer.Option(help="Columns, comma-separated.")] = None,
    as_of: Annotated[str | None, typer.Option(help="A lake snapshot id, or a date and time: history alone.")] = None,
    at_least: Annotated[str | None, typer.Option(help="A token that a write gave: read at least that.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Rows at the most.")] = None,
    format: Annotated[
        ReadFormat, typer.Option(help="A table for people, JSON lines, CSV, or an Arrow stream.")
    ] = ReadFormat.TABLE,
    server: Server = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Reads a table: lake history plus hot tail. How fresh the rows are is said on standard error.

    Example: lakeward read shop.orders --limit 10"""
    from lakeward.read.arrow import describe_freshness

    chosen = [c.strip() for c in columns.split(",")] if columns else None
    with open_client(server) as client:
        result = client.read(table, columns=chosen, mode=str(mode), as_of=as_of, at_least=at_least)
        with result:
            write_rows(result.schema, take(result, limit), ReadFormat.JSON if as_json else format)
        note(describe_freshness(result.bound))


def sql(
    query: Annotated[str, typer.Argument(help="SQL over tables by name; a name with a dot is a Lakeward table.")],
    format: Annotated[
        ReadFormat, typer.Option(help="A table for people, JSON lines, CSV, or an Arrow stream.")
    ] = ReadFormat.TABLE,
    mode: Annotated[Mode, typer.Option(help="union: lake history plus hot tail; or one side alone.")] = Mode.UNION,
    server: Server = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Runs a query with DuckDB over union reads.

    Example: lakeward sql "SELECT count(*) FROM shop.orders" """
    from lakeward.cli.sqlquery import run_sql

    with open_client(server) as client:
        result, notes = run_sql(client, query, str(mode))
        write_rows(result.schema, result.to_batches(), ReadFormat.JSON if as_json else format)
    for words in notes:
        note(words)


@contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """A bar on standard error while rows are written; silent where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(file=sys.stderr)
    parts = (TextColumn("writing"), BarColumn(), MofNCompleteColumn(), TextColumn("rows"), TimeElapsedColumn())
    with Progress(*parts, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("rows", total=None)
        yield lambda rows: bar.advance(task, rows)
