# SPDX-License-Identifier: Apache-2.0
"""`lakeward console`: the dashboard of an Apache Fluss cluster, and its tables as warehouse `live`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakeward.cli.cluster import FlussUser, open_fluss
from lakeward.cli.output import Json
from lakeward.protocol.routes import DEFAULT_PORT

if TYPE_CHECKING:
    from lakeward.hot.fluss.plugin import FlussPlugin
    from lakeward.server.cluster.console import Console

LOOK_S = 1.0


def register(app: typer.Typer) -> None:
    app.command("console")(console)


def console(
    fluss: Annotated[str, typer.Option("--fluss", help="host:port of a server of the Apache Fluss cluster.")],
    fluss_user: FlussUser = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="HTTP port; 0 takes a free one.")] = DEFAULT_PORT,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; any but loopback needs a token (server.tokens).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Serves the dashboard of a Fluss cluster, read-only, for all tiering jobs: tables, rounds, jobs, files, /metrics;
    and under /iceberg the warehouse `live`, where engines read lake and hot tail by URL alone.

    Example: lakeward console --fluss 127.0.0.1:9123"""
    from lakeward.model import StopSignal

    stopping = StopSignal()
    with open_fluss(fluss, fluss_user) as plugin:
        page = open_console(plugin, port, host)
        page.start()
        try:
            words = f"the dashboard of {fluss} is at {page.url}"
            print(json.dumps({"url": page.url}) if as_json else words, flush=True)
            while not stopping.wait(LOOK_S) and page.is_serving:
                continue
        finally:
            page.stop()


def open_console(plugin: FlussPlugin, port: int, host: str | None = None, *, is_job: bool = False) -> Console:
    """Tokens, TLS and allowed hosts are those of `server.*` in the configuration. Raises `InvalidConfig`."""
    from lakeward.config import resolve
    from lakeward.server.cluster.console import Console

    given: dict[str, Any] = {"server.port": port, "server.host": host}
    return Console(resolve(arguments={k: v for k, v in given.items() if v is not None}), plugin, is_job=is_job)
