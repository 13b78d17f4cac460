# SPDX-License-Identifier: Apache-2.0
"""`lakeward server`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lakeward.errors import InvalidConfig


def register(app: typer.Typer) -> None:
    app.command("server")(serve)


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; any but loopback needs a token.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="HTTP port; 0 takes a free one (and one for Flight).")
    ] = None,
    flight_port: Annotated[int | None, typer.Option(min=0, max=65535, help="Arrow Flight port.")] = None,
    data: Annotated[Path | None, typer.Option(help="Data folder.")] = None,
    config: Annotated[Path | None, typer.Option(help="Configuration file (TOML).")] = None,
    restored: Annotated[
        bool,
        typer.Option("--restored", help="The data folder is an older copy (a restored backup says so itself)."),
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any option, as key=value; may be repeated.")
    ] = None,
    ready_file: Annotated[Path | None, typer.Option(help="File that gets the URL once the server is up.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say the addresses as JSON once the server is up.")] = False,
) -> None:
    """The hot store, the coordinator and the catalog in one process: HTTP for control, Arrow Flight for rows.

    Example: lakeward server --data ./data --set datalake.format=iceberg"""
    from lakeward.config import options, resolve
    from lakeward.server.process import exit_now, run_server

    set_options: dict[str, Any] = dict(_pair(text) for text in settings or ())
    if (
        port == 0
        and flight_port is None
        and not resolve(file=config, arguments=set_options).is_set(options.SERVER_FLIGHT_PORT)
    ):
        flight_port = 0
    named = {"server.host": host, "server.port": port, "server.flight-port": flight_port, "server.data-dir": data}
    set_options.update({key: value for key, value in named.items() if value is not None})
    if restored:
        set_options["server.restored"] = "true"
    exit_now(run_server(resolve(file=config, arguments=set_options), ready_file, as_json=as_json))


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InvalidConfig(where="--set", reason=f"{text!r} is no key=value")
    return key.strip(), value.strip()
