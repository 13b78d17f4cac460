# SPDX-License-Identifier: Apache-2.0
"""`lakeward changes`: what happened to a table's rows, from any moment that is kept."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeward.cli.connection import open_client
from lakeward.cli.files.rowprint import ReadFormat, take, write_rows
from lakeward.cli.output import Server, Table


def register(app: typer.Typer) -> None:
    app.command("changes")(changes)


def changes(
    table: Table,
    since: Annotated[
        str, typer.Option(help="How long ago (1h), a date and time, a lake snapshot's id, earliest, or latest.")
    ] = "earliest",
    until: Annotated[str | None, typer.Option(help="The same; changes from then on are left out. Else: now.")] = None,
    columns: Annotated[str | None, typer.Option(help="Columns, comma-separated.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Changes at the most.")] = None,
    format: Annotated[
        ReadFormat, typer.Option(help="A table for people, JSON lines, CSV, or an Arrow stream.")
    ] = ReadFormat.TABLE,
    server: Server = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Every change of a table in order per bucket, each once: from the lake what the log no longer holds, then from
    the log.

    Example: lakeward changes shop.orders --since 1h"""
    chosen = [c.strip() for c in columns.split(",")] if columns else None
    with open_client(server) as client, client.changes(table, since, until, columns=chosen) as result:
        write_rows(result.schema, take(result, limit), ReadFormat.JSON if as_json else format)
