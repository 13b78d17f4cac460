# SPDX-License-Identifier: Apache-2.0
"""`lakeward write`, `read`, `sql`: rows in and out."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lakeward.cli.connection import open_client
from lakeward.cli.files.cellformat import cell_format
from lakeward.cli.files.fileoptions import (
    DateFormat,
    Decimal,
    Delimiter,
    Encoding,
    FalseWords,
    LocaleName,
    Nulls,
    Order,
    Thousands,
    TrueWords,
)
from lakeward.cli.files.filerows import FileShape, Rejects, parse_renames
from lakeward.cli.files.rowfiles import WriteFormat, find_files
from lakeward.cli.files.rowprint import ReadFormat, take, write_rows
from lakeward.cli.output import Json, Server, Table, counted, note, print_json


class Mode(StrEnum):
    UNION = "union"
    LAKE = "lake"
    HOT = "hot"


def register(app: typer.Typer) -> None:
    for command in (write, read, sql):
        app.command(command.__name__)(command)


def write(
    table: Table,
    files: Annotated[
        list[str],
        typer.Argument(
            help="JSON (lines or an array), CSV, Parquet, Arrow, also .gz and .zst; several, patterns, a folder, or -."
        ),
    ],
    format: Annotated[
        WriteFormat | None, typer.Option(help="The files' format; else from their names (JSON lines for -).")
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="PK tables: rows name keys to delete.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="PK tables: whole rows; columns that are not given become NULL.")
    ] = False,
    atomic: Annotated[bool, typer.Option("--atomic", help="Check every row of all files before any is sent.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where a write of this file stopped; nothing is stored twice.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Write each file that comes into the folder, until Ctrl-C.")
    ] = False,
    skip_bad: Annotated[
        Path | None, typer.Option("--skip-bad", help="Rows that cannot be taken go into this CSV file, with reasons.")
    ] = None,
    locale: LocaleName = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    date_order: Order = None,
    date_format: DateFormat = None,
    true: TrueWords = None,
    false: FalseWords = None,
    null: Nulls = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    columns: Annotated[
        str | None, typer.Option(help="Names in the file and in the table: 'Order No=id,Sum=total'.")
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Appends rows to a log table, or upserts them into a PK table: columns that a row does not give stay as they are.
    Rows are durable when this ends.

    Example: lakeward write shop.orders orders.csv"""
    from lakeward.cli.files.writefiles import WriteFiles

    cells = cell_format(
        locale=locale,
        decimal=decimal,
        thousands=thousands,
        date_order=date_order,
        date_format=date_format,
        true_words=true or (),
        false_words=false or (),
        nulls=null or (),
    )
    shape = FileShape(delimiter=delimiter, cells=cells, encoding=encoding, renamed=parse_renames(columns))
    with open_client(server) as client, Rejects(skip_bad) as rejects:
        job = WriteFiles(client.table(table), shape, format, delete=delete, replace=replace, rejects=rejects)
        if follow:
            job.follow(files)
            return
        job.run(find_files(files), atomic=atomic, resume=resume)
    token = None if job.token is None else str(job.token)
    if as_json:
        counts = {"rows": job.rows, "skipped": rejects.count, "quarantined": job.quarantined}
        print_json({"table": table, **counts, "token": token})
    else:
        skipped = f"; {rejects.count:,} were skipped, see {skip_bad}" if rejects.count else ""
        print(f"{counted(job.rows, 'row')} {'deleted from' if delete else 'written to'} {table}{skipped}")
        if job.quarantined:
            note(f"{counted(job.quarantined, 'row')} did not fit: `lakeward quarantine list {table}` says why")


PastColumns = Annotated[
    bool, typer.Option("--as-of-schema", help="With --as-of or --cut: the columns as they were named and typed then.")
]


def read(
    table: Table,
    mode: Annotated[Mode, typer.Option(help="union: lake history plus hot tail; or one side alone.")] = Mode.UNION,
    columns: Annotated[str | None, typer.Option(help="Columns, comma-separated.")] = None,
    as_of: Annotated[
        str | None, typer.Option(help="A lake snapshot id, or a date and time: history alone, in today's columns.")
    ] = None,
    as_of_schema: PastColumns = False,
    at_least: Annotated[str | None, typer.Option(help="A token that a write gave: read at least that.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Rows at the most.")] = None,
    lake: Annotated[
        str | None, typer.Option(help="Of a table in several lakes: this one, in place of the one that is furthest.")
    ] = None,
    cut: Annotated[str | None, typer.Option(help="As it was at this cut; see `lakeward cut list`.")] = None,
    format: Annotated[
        ReadFormat, typer.Option(help="A table for people, JSON lines, CSV, or an Arrow stream.")
    ] = ReadFormat.TABLE,
    server: Server = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Reads a table: lake history plus hot tail. The freshness of the rows is printed on standard error.

    Example: lakeward read shop.orders --limit 10"""
    from lakeward.read.arrow import describe_freshness

    chosen = [c.strip() for c in columns.split(",")] if columns else None
    with open_client(server) as client:
        options = {"mode": str(mode), "as_of": as_of, "at_least": at_least, "lake": lake, "cut": cut}
        result = client.read(table, columns=chosen, as_of_schema=as_of_schema, **options)
        with result:
            write_rows(result.schema, take(result, limit), ReadFormat.JSON if as_json else format)
        note(describe_freshness(result.bound))


def sql(
    query: Annotated[
        str | None, typer.Argument(help="SQL over tables by name, as shop.orders; none: a shell, or standard input.")
    ] = None,
    format: Annotated[
        ReadFormat, typer.Option(help="A table for people, JSON lines, CSV, or an Arrow stream.")
    ] = ReadFormat.TABLE,
    mode: Annotated[Mode, typer.Option(help="union: lake history plus hot tail; or one side alone.")] = Mode.UNION,
    as_of: Annotated[
        str | None, typer.Option(help="A lake snapshot id, or a date and time: every table's history alone.")
    ] = None,
    as_of_schema: PastColumns = False,
    cut: Annotated[str | None, typer.Option(help="Every table as it was at this cut; see `lakeward cut list`.")] = None,
    lake: Annotated[
        str | None, typer.Option(help="Of tables in several lakes: this one, in place of the one that is furthest.")
    ] = None,
    server: Server = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Runs a query with DuckDB over union reads, or an ALTER TABLE, whose plan is printed first (EXPLAIN ALTER TABLE
    prints it alone). Without one: a shell, with completion and history.

    Example: lakeward sql "SELECT count(*) FROM shop.orders" """
    from lakeward.cli.sql.sqlquery import run_alter, run_sql
    from lakeward.cli.sql.sqlshell import SqlShell
    from lakeward.protocol.alterstatement import is_alter

    shown = ReadFormat.JSON if as_json else format
    with open_client(server) as client:
        if query is None:
            SqlShell(client, str(mode), as_of, shown, as_of_schema=as_of_schema, cut=cut, lake=lake).run()
            return
        if is_alter(query):
            print("\n".join(run_alter(client, query)))
            return
        result, notes = run_sql(client, query, str(mode), as_of, as_of_schema=as_of_schema, cut=cut, lake=lake)
        write_rows(result.schema, result.to_batches(), shown)
    for words in notes:
        note(words)
