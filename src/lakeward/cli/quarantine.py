# SPDX-License-Identifier: Apache-2.0
"""`lakeward quarantine`: rows that a table did not take."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from lakeward.cli.connection import open_server
from lakeward.cli.output import Json, Server, Table, counted, moment, note, print_json, print_rows
from lakeward.errors import InvalidRequest
from lakeward.protocol import routes

group = typer.Typer(help="Rows that a table did not take: list, show, redrive.", no_args_is_help=True)
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="Rows at the most, the oldest first.")]

REDRIVE_S = 900.0


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="quarantine")


@group.callback()
def quarantine() -> None:
    """Rows that a table did not take: list, show, redrive."""


@group.command("list")
def list_rows(table: Table, limit: Limit = 100, server: Server = None, as_json: Json = False) -> None:
    """Rows that wait to be corrected, and why the table did not take them.

    Example: lakeward quarantine list shop.visits"""
    body = _ask(server, table, limit)
    if as_json:
        print_json(body)
        return
    rows = [(r["id"], moment(r["at_ms"]), _place(r), r["bad"]["column"], r["bad"]["reason"]) for r in body["rows"]]
    columns = ("row", "since", "source", "column", "reason")
    print_rows(columns, rows, empty=f"no row of {table} waits in its quarantine")
    if hidden_rows := body["waiting"] - len(rows):
        note(f"{counted(hidden_rows, 'row')} more; --limit shows them")


@group.command("show")
def show_rows(
    table: Table,
    rows: Annotated[list[str] | None, typer.Argument(help="Ids of rows; none: all that wait.")] = None,
    limit: Limit = 10_000,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Rows as they came, one JSON object a line: edit `row` and give the file to `redrive --rows`.

    Example: lakeward quarantine show shop.visits"""
    body = _ask(server, table, limit)
    rows_by_id = {r["id"]: r for r in body["rows"]}
    if missing := [row_id for row_id in rows or () if row_id not in rows_by_id]:
        reason = f"it is not among the {len(rows_by_id)} rows that wait; `lakeward quarantine list {table}` shows them"
        raise InvalidRequest(what=f"row {missing[0]}", reason=reason)
    shown = [_shown(rows_by_id[row_id]) for row_id in rows or rows_by_id]
    if as_json:
        print_json(shown)
        return
    for row in shown:
        print(json.dumps(row, ensure_ascii=False))


@group.command("redrive")
def redrive_rows(
    table: Table,
    rows: Annotated[list[str] | None, typer.Argument(help="Ids of rows; none: all, or those of --rows.")] = None,
    corrected: Annotated[
        Path | None, typer.Option("--rows", help="Lines of `quarantine show` with `row` corrected.")
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Writes rows to the table, as they are now or corrected, each once: call it again after any failure. Rows that
    still do not fit stay.

    Example: lakeward quarantine redrive shop.visits"""
    request = {"ids": rows or [], "corrected": _corrected(corrected)}
    with closing(open_server(server)) as door:
        body = door.ask("POST", routes.REDRIVE.format(table=table), request, timeout_s=REDRIVE_S)
    if as_json:
        print_json(body)
        return
    print(f"{counted(len(body['redriven']), 'row')} written to {table}; {len(body['refused'])} still do not fit")
    for row_id, reason in body["refused"].items():
        note(f"{row_id}: {reason}")
    if body["waiting"]:
        note(f"{counted(body['waiting'], 'row')} more wait; call it again")


def _ask(server: str | None, table: str, limit: int) -> dict[str, Any]:
    with closing(open_server(server)) as door:
        body: dict[str, Any] = door.ask("GET", routes.QUARANTINE.format(table=table), params={"limit": str(limit)})
    return body


def _place(row: dict[str, Any]) -> str:
    return f"{row['source']}, row {row['bad']['number']}"


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row that is no JSON is shown as the text that it is."""
    bad = row["bad"]
    try:
        value: Any = json.loads(bad["row"])
    except ValueError:
        value = bad["row"]
    return {"id": row["id"], "row": value, "column": bad["column"], "reason": bad["reason"]}


def _corrected(file: Path | None) -> dict[str, str]:
    """Id -> text. Raises `InvalidRequest`."""
    if file is None:
        return {}
    texts: dict[str, str] = {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(what=f"file {file}", reason=str(error)) from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            body = json.loads(line)
            row = body["row"]
            texts[str(body["id"])] = row if isinstance(row, str) else json.dumps(row)
        except (ValueError, KeyError, TypeError) as error:
            reason = "a line is a JSON object with id and row, as `lakeward quarantine show` prints it"
            raise InvalidRequest(what=f"{file}, line {number}", reason=reason) from error
    return texts
