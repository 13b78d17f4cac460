# SPDX-License-Identifier: Apache-2.0
"""`lakeward top`: tiles, the tables that are worst, and jobs, again and again in the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakeward.cli.connection import open_server
from lakeward.cli.output import Json, Server, counted, duration, moment, print_json
from lakeward.protocol import routes

if TYPE_CHECKING:
    from rich.console import Group


def register(app: typer.Typer) -> None:
    app.command("top")(top)


def top(
    every: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between two looks.")] = 2.0,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Tables to show, worst first.")] = 20,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """A live view: tiles, the tables whose lag is worst against their freshness, jobs. Once where standard output is no
    terminal. Ctrl-C ends it.

    Example: lakeward top"""
    from rich.console import Console
    from rich.live import Live

    with closing(open_server(server)) as door:
        body = door.ask("GET", routes.DASHBOARD)
        if as_json:
            print_json({**body, "tables": worst_first(body["tables"])[:rows]})
            return
        console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
        if not sys.stdout.isatty():
            console.print(view(body, rows))
            return
        with Live(view(body, rows), console=console, screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(every)
                live.update(view(door.ask("GET", routes.DASHBOARD), rows), refresh=True)


def worst_first(tables: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Failing ones, then by lag against freshness; what is switched off last."""
    return sorted(tables, key=_trouble, reverse=True)


def _trouble(table: dict[str, Any]) -> tuple[bool, bool, float]:
    is_on = table["state"] not in ("disabled", "paused")
    return is_on, is_on and bool(table["failures_in_a_row"]), table["lag_ms"] / max(1, table["freshness_ms"])


def view(body: dict[str, Any], rows: int) -> Group:
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table

    tiles = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "", "what", "now", "to do"):
        tiles.add_column(name)
    for tile in body["tiles"]:
        colour = "green" if tile["ok"] and not tile["late"] else "yellow" if tile["late"] else "red"
        tiles.add_row("", f"[{colour}]●[/]", escape(tile["name"]), escape(tile["figure"]), escape(tile["advice"] or ""))
    tables = Table("table", "state", "freshness", "lag", "waiting", "last round", "files", box=None, pad_edge=False)
    for t in worst_first(body["tables"])[:rows]:
        late = "red" if t["lag_ms"] > t["freshness_ms"] or t["failures_in_a_row"] else "default"
        tables.add_row(
            escape(t["path"]),
            escape(t["state"]),
            duration(t["freshness_ms"]),
            f"[{late}]{duration(t['lag_ms'])}[/]",
            f"{t['waiting_rows']:,}",
            duration(t["last_duration_ms"]),
            f"{t['lake_files'] or 0:,}",
        )
    jobs = Table("job", "state", "slots", "working on", "last beat", box=None, pad_edge=False)
    for j in body["jobs"]:
        state = "live" if j["live"] else "silent"
        jobs.add_row(
            escape(j["name"]),
            state,
            str("-" if j["slots"] is None else j["slots"]),
            escape(", ".join(j["working_on"])),
            moment(j["last_beat_at_ms"]),
        )
    more = f"{counted(len(body['tables']), 'table')}, {moment(body['now_ms'])} UTC"
    return Group(tiles, "", more, tables, "", jobs)
