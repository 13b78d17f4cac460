# SPDX-License-Identifier: Apache-2.0
"""How commands print: JSON for machines, tables for people, notes on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from lakeward.errors import InvalidRequest
from lakeward.model import SideName

Json = Annotated[bool, typer.Option("--json", help="For machines.")]
Server = Annotated[
    str | None, typer.Option("--server", help="The server's HTTP address; else LAKEWARD_SERVER or lakeward.toml.")
]


def complete_table(incomplete: str) -> list[str]:
    """For shells: tables of the server that a call without --server would ask. Nothing where it does not answer."""
    from contextlib import closing

    from lakeward.cli.connection import open_server
    from lakeward.errors import LakewardError
    from lakeward.protocol import routes

    try:
        with closing(open_server(None, waits=False)) as door:
            listed = door.ask("GET", routes.TABLES, timeout_s=2.0)["tables"]
    except (LakewardError, OSError):
        return []
    return [name for t in listed if (name := str(t["path"])).startswith(incomplete)]


Table = Annotated[str, typer.Argument(help="The table, as database.table.", autocompletion=complete_table)]


Lake = Annotated[
    str | None, typer.Option("--lake", help="Of a table in several lakes: this one, in place of all or the first.")
]


def lake_params(lake: str | None) -> dict[str, str]:
    return {} if lake is None else {"side": lake}


def parse_lake(lake: str | None) -> SideName | None:
    """Raises `InvalidRequest`."""
    try:
        return None if lake is None else SideName.parse(lake)
    except ValueError as error:
        raise InvalidRequest(what=f"--lake {lake!r}", reason=str(error)) from error


def side_label(row: dict[str, Any], rows: Iterable[dict[str, Any]]) -> str:
    """The table, and the lake where it is in several."""
    many = sum(other["path"] == row["path"] for other in rows) > 1
    return f"{row['path']} ({row['side']})" if many else str(row["path"])


def print_json(body: Any) -> None:
    print(json.dumps(body, indent=2, default=str))


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "nothing to show") -> None:
    """A table for people; plain text where standard output is no terminal."""
    from rich.console import Console
    from rich.table import Table as RichTable

    listed = [[_text(cell) for cell in row] for row in rows]
    if not listed:
        print(empty)
        return
    table = RichTable(*columns, box=None, pad_edge=False, header_style="bold")
    for row in listed:
        table.add_row(*row)
    width = None if sys.stdout.isatty() else 400
    Console(width=width, highlight=False).print(table)


def note(words: str) -> None:
    """For people, on standard error: pipes stay clean."""
    print(words, file=sys.stderr)


def duration(ms: float | None) -> str:
    if ms is None:
        return "-"
    seconds = ms / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def counted(number: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def moment(at_ms: int | None) -> str:
    return "-" if not at_ms else datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def size(count: int | None) -> str:
    if count is None:
        return "-"
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def _text(cell: Any) -> str:
    from rich.markup import escape

    if cell is None:
        return "-"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else escape(str(cell))
