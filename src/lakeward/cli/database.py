# SPDX-License-Identifier: Apache-2.0
"""`lakeward database`: the lake of each one's new tables, and who may use it."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated
from urllib.parse import quote

import typer

from lakeward.cli.connection import open_server
from lakeward.cli.output import Json, Server, print_json, print_rows
from lakeward.errors import InvalidRequest
from lakeward.protocol import routes

group = typer.Typer(help="Databases: list, alter.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="database")


@group.callback()
def database() -> None:
    """Databases: list, alter."""


@group.command("list")
def list_databases(server: Server = None, as_json: Json = False) -> None:
    """Every database: the lake of its new tables, how many it has, and, for an administrator, whose tokens are good
    for it.

    Example: lakeward database list"""
    with closing(open_server(server)) as door:
        listed = door.ask("GET", routes.DATABASES)["databases"]
    if as_json:
        print_json(listed)
        return
    print_rows(
        ("database", "lake of new tables", "tables", "tokens"),
        [(d["name"], d["lake"] or "the server's", d["tables"], ", ".join(d["tokens"]) or "-") for d in listed],
        empty="no databases; one is there with its first table",
    )


@group.command("alter")
def alter_database(
    name: Annotated[str, typer.Argument(help="The database: what stands before the dot of a table's name.")],
    lake: Annotated[str | None, typer.Option(help="Where new tables are made that name no lake themselves.")] = None,
    no_lake: Annotated[bool, typer.Option("--no-lake", help="Where the configuration says, as before.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Names the lake that new tables of a database are made in. Tables that are there stay where they are.

    Example: lakeward database alter finance --lake finance"""
    if (lake is None) != no_lake:
        raise InvalidRequest(what=f"database alter {name}", reason="say --lake NAME, or --no-lake")
    with closing(open_server(server)) as door:
        body = door.ask("PATCH", routes.DATABASE.format(database=quote(name, safe="")), {"lake": lake})
    if as_json:
        print_json(body)
    else:
        print(f"new tables of {name} are made in {'lake ' + lake if lake else 'the lake of the configuration'}")
