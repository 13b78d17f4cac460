# SPDX-License-Identifier: Apache-2.0
"""`lakeward lake`: the server's lakes, and whether one answers."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated, Any
from urllib.parse import quote

import typer

from lakeward.cli.connection import open_server
from lakeward.cli.output import Json, Server, counted, duration, print_json, print_rows
from lakeward.protocol import routes

group = typer.Typer(help="The server's lakes: list, check.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="lake")


@group.callback()
def lake() -> None:
    """The server's lakes: list, check."""


@group.command("list")
def list_lakes(server: Server = None, as_json: Json = False) -> None:
    """Every lake of the server, the one of tables that name none first.

    Example: lakeward lake list"""
    with closing(open_server(server)) as door:
        listed = door.ask("GET", routes.LAKES)["lakes"]
    if as_json:
        print_json(listed)
        return
    print_rows(
        ("lake", "format", "tables", "where", "state"),
        [(_name(row), row["format"], row["tables"], _where(row), row["trouble"] or "answers") for row in listed],
        empty="no lake is configured; set datalake.format, or a [lakes.NAME] with a format",
    )


@group.command("check")
def check_lake(
    name: Annotated[str, typer.Argument(help="The lake's name, as `lakeward lake list` shows it.")],
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Asks the lake's catalog now. Exit code 5 when it does not answer.

    Example: lakeward lake check finance"""
    with closing(open_server(server)) as door:
        body = door.ask("POST", routes.LAKE_CHECK.format(lake=quote(name, safe="")))
    if as_json:
        print_json(body)
    else:
        tables_text = f"{counted(body['tables'], 'table')} {'goes' if body['tables'] == 1 else 'go'} there"
        state = body["trouble"] or f"answers ({duration(body['took_ms'])}); {tables_text}"
        print(f"lake {name} ({body['format']}): {state}")
    if body["trouble"]:
        raise typer.Exit(5)


def _name(row: dict[str, Any]) -> str:
    return f"{row['name']} (default)" if row["is_default"] and row["name"] != "default" else str(row["name"])


def _where(row: dict[str, Any]) -> str:
    shown = [row["options"][key] for key in ("uri", "warehouse", "name") if row["options"].get(key)]
    return " ".join(shown) or "-"
