# SPDX-License-Identifier: Apache-2.0
"""`lakeward tier`."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command("tier")(tier)


def tier(
    server: Annotated[str | None, typer.Option(help="The server's HTTP address.")] = None,
    fluss: Annotated[
        str | None, typer.Option(help="host:port of an Apache Fluss server, in place of --server.")
    ] = None,
    fluss_user: Annotated[
        str | None, typer.Option(help="User at the Fluss cluster; password from LAKEWARD_FLUSS_PASSWORD.")
    ] = None,
    deletes: Annotated[
        str | None, typer.Option(help="With --fluss: replaced rows go by positions (default) or by equality.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The job's name; a newer instance of the same name takes over.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="The pool of tables this job serves.")] = None,
    slots: Annotated[int | None, typer.Option(help="Rounds at the same time.")] = None,
    master: Annotated[
        str | None, typer.Option(help="Spark master: local[*,4], spark://host:7077, yarn, k8s://...")
    ] = None,
    conf: Annotated[list[str] | None, typer.Option(help="A Spark setting, key=value; may be given many times.")] = None,
    token_file: Annotated[str | None, typer.Option(help="File that holds the token; else LAKEWARD_TOKEN.")] = None,
) -> None:
    """Runs a tiering job: rounds from the hot store into the lake, until SIGTERM.

    Example: lakeward tier --server http://127.0.0.1:9050 --slots 4, or lakeward tier --fluss 127.0.0.1:9123"""
    from lakeward.tiering.job.arguments import run

    run(
        server=server,
        fluss=fluss,
        fluss_user=fluss_user,
        deletes=deletes,
        name=name,
        pool=pool,
        slots=slots,
        master=master,
        conf=conf or [],
        token_file=token_file,
    )
