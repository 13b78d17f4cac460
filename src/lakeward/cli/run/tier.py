# SPDX-License-Identifier: Apache-2.0
"""`lakeward tier`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from lakeward.cli.cluster import open_fluss
from lakeward.errors import InvalidConfig


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
    serve: Annotated[
        int | None,
        typer.Option(
            "--serve", min=0, max=65535, help="With --fluss: serve the cluster's dashboard and /metrics on this port."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Log lines as JSON objects, one a line.")] = False,
) -> None:
    """Runs a tiering job: rounds from the hot store into the lake, until SIGTERM.

    Example: lakeward tier --server http://127.0.0.1:9050 --slots 4, or lakeward tier --fluss 127.0.0.1:9123"""
    from lakeward.tiering.job.arguments import run

    run_here = partial(
        run,
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
        as_json=as_json,
    )
    if serve is None:
        run_here()
    elif fluss is None:
        raise InvalidConfig(where="--serve", reason="only with --fluss: a server serves its dashboard itself")
    else:
        _run_with_page(run_here, fluss, fluss_user, serve)


def _run_with_page(run_here: Callable[..., None], fluss: str, user: str | None, port: int) -> None:
    """The page is there before Spark is; the job joins it when it starts."""
    from lakeward.cli.run.console import open_console
    from lakeward.server.cluster.ownjob import OwnJob
    from lakeward.tiering.job.job import TieringJob

    def join(job: TieringJob) -> None:
        page.source.own = OwnJob(job)

    with open_fluss(fluss, user) as plugin:
        page = open_console(plugin, port, is_job=True)
        page.start()
        try:
            print(f"the dashboard of {fluss} is at {page.url}", flush=True)
            run_here(started=join)
        finally:
            page.stop()
