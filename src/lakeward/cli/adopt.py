# SPDX-License-Identifier: Apache-2.0
"""`lakeward table adopt`: a lake table that is there already, ours or made by others. With a key its rows are loaded
first; the command waits for that, and says how far it is.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakeward.cli.connection import open_client
from lakeward.cli.output import Json, Server, Table, note, print_json
from lakeward.errors import InvalidRequest, ServerUnavailable
from lakeward.model import TablePath
from lakeward.protocol import routes
from lakeward.protocol.codec import encode
from lakeward.protocol.operate import AdoptTable

if TYPE_CHECKING:
    from lakeward.client import Client

EVERY_S = 0.5
_TOLD_S = 10.0
"""How often a line is printed where standard error is no terminal."""


def adopt(
    table: Table,
    foreign: Annotated[
        bool, typer.Option("--foreign", help="A table that others made: its rows stay where they are.")
    ] = False,
    lake: Annotated[str | None, typer.Option("--lake", help="With --foreign: the lake that it is in.")] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="With --foreign: key columns, separated by commas. Without: a log table."),
    ] = None,
    buckets: Annotated[int, typer.Option(help="With --foreign: number of buckets of the hot side.")] = 1,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Takes over a lake table that has snapshots of Lakeward: the same table id, its offsets.

    With --foreign, an Iceberg table that another engine made: its rows stay as they are, new rows are added. With --key
    rows are replaced and deleted by key; existing rows are first loaded into the hot store by the server, which
    continues if it restarts or if this command is stopped. Snapshots from before expire by the table's own
    history.expire.max-snapshot-age-ms, or after half an hour where it has none.

    Example: lakeward table adopt shop.orders; or lakeward table adopt --foreign shop.visits --lake main --key id"""
    if not foreign and (lake is not None or key is not None or buckets != 1):
        reason = "they are for tables that others made: --foreign"
        raise InvalidRequest(what="--lake, --key and --buckets", reason=reason)
    names = tuple(n.strip() for n in (key or "").split(",") if n.strip())
    message = AdoptTable(foreign=foreign, lake=lake, primary_key=names, bucket_count=buckets)
    path = TablePath.parse(table)
    with open_client(server) as client:
        body = client.server.ask("POST", routes.ADOPT.format(table=path), encode(message), repeatable=False)
        for warning in body.get("warnings", ()):
            note(f"warning: {warning}")
        if "is_done" in body:
            body = _wait(client, path, body)
    print_json(body) if as_json else print(f"adopted {table}")


def _wait(client: Client, path: TablePath, body: dict[str, Any]) -> dict[str, Any]:
    """Until all rows are in. Raises what it was refused for."""
    is_terminal, told_at, words = sys.stderr.isatty(), 0.0, ""
    while not body["is_done"]:
        if is_terminal:
            print(f"\r\x1b[K{spell_progress(body)}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - told_at > _TOLD_S or body["words"] != words:
            told_at, words = time.monotonic(), body["words"]
            note(spell_progress(body))
        time.sleep(EVERY_S)
        try:
            body = client.server.ask("GET", routes.ADOPTION.format(table=path))
        except ServerUnavailable:
            note(f"{path}: once the server is back it goes on by itself, and the same command joins in again")
            raise
    if is_terminal:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return body


def spell_progress(body: dict[str, Any]) -> str:
    rows, of = body["rows"], body["of_rows"]
    share = f" ({100 * rows // of} %)" if of and rows <= of else ""
    words = f"; {body['words']}" if body["words"] else ""
    files = f"{body['files']} of {body['of_files']} files"
    return f"{body['path']}: {rows:,} of about {of:,} rows loaded{share}, {files}{words}"
