# SPDX-License-Identifier: Apache-2.0
"""The demo's live view: rows in, lake lag against freshness, rounds and files, drawn in the terminal once a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from lakeward.cli.output import duration
from lakeward.protocol import routes

if TYPE_CHECKING:
    from lakeward.cli.run.demoload import DemoLoad
    from lakeward.client import Client

PLAIN_EVERY_S = 10


class Story:
    """Lines that the demo prints."""

    def __init__(self, out: TextIO) -> None:
        self.out = out

    def __call__(self, words: str) -> None:
        print(words, flush=True, file=self.out)


def watch(client: Client, load: DemoLoad, url: str, seconds: float, alive: Callable[[], None], say: Story) -> float:
    """Shows the run until `seconds` are over; returns the worst lag over freshness. `alive()` raises when a
    child died.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console(file=say.out, highlight=False)
    worst, started, shown = 0.0, time.monotonic(), 0
    with Live(console=console, refresh_per_second=4, transient=True, auto_refresh=console.is_terminal) as live:
        while (spent := time.monotonic() - started) < seconds:
            alive()
            if load.failure is not None:
                raise load.failure
            tables = client.server.ask("GET", routes.STATUS)["tables"]
            worst = max([worst, *(t["lag_ms"] / t["freshness_ms"] for t in tables if t["state"] != "disabled")])
            if console.is_terminal:
                live.update(_frame(tables, load, url, spent, seconds))
            elif spent >= shown * PLAIN_EVERY_S:
                shown += 1
                say(_line(tables, load, spent))
            time.sleep(1.0)
    return worst


def _frame(tables: list[dict[str, Any]], load: DemoLoad, url: str, spent: float, seconds: float) -> Any:
    from rich.console import Group
    from rich.table import Table

    head = f"[bold]Lakeward demo[/bold]  {spent:.0f} of {seconds:.0f} s   dashboard: {url}\n"
    head += f"rows in: {load.clicks:,} clicks, {load.changes:,} order changes"
    frame = Table("table", "state", "lag / freshness", "waiting", "rounds ended", "lake rows", "files", box=None)
    for t in tables:
        late = "red" if t["lag_ms"] > t["freshness_ms"] else "green"
        lag = f"[{late}]{duration(t['lag_ms'])}[/{late}] / {duration(t['freshness_ms'])}"
        frame.add_row(
            t["path"],
            t["state"],
            lag,
            f"{t['waiting_rows']:,}",
            str(t["epoch"]),
            _number(t["lake_rows"]),
            _number(t["lake_files"]),
        )
    return Group(head, frame)


def _line(tables: list[dict[str, Any]], load: DemoLoad, spent: float) -> str:
    lags = ", ".join(f"{t['path']} lag {duration(t['lag_ms'])} of {duration(t['freshness_ms'])}" for t in tables)
    return f"{spent:4.0f} s  {load.clicks:,} clicks and {load.changes:,} order changes in; {lags}"


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
