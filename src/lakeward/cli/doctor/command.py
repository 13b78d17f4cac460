# SPDX-License-Identifier: Apache-2.0
"""`lakeward doctor` and `lakeward preflight`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from lakeward.cli.cluster import Fluss, FlussUser, check_no_server, open_fluss
from lakeward.cli.connection import open_server
from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.output import Json, Server, counted, note, print_json
from lakeward.config import options, resolve
from lakeward.errors import InvalidConfig
from lakeward.model import SystemClock, TablePath
from lakeward.model.logline import escape


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)
    app.command("preflight")(preflight)


def doctor(
    table: Annotated[str | None, typer.Option("--table", help="What is about this table alone.")] = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Write a small file into the lake, delete it, and look for orphans.")
    ] = False,
    fluss: Fluss = None,
    fluss_user: FlussUser = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Says what is wrong or will be, each with its figure, why it matters and what mends it. Changes nothing. Exit code
    1 when something is wrong now.

    Example: lakeward doctor"""
    from lakeward.cli.doctor.gather import gather
    from lakeward.cli.doctor.registry import CHECKS, examine

    if fluss is not None:
        check_no_server(server)
        if probe:
            raise InvalidConfig(where="--probe", reason="not together with --fluss: it is for a server's lakes")
        _examine_cluster(fluss, fluss_user, table, as_json=as_json)
        return
    config = resolve()
    logins = (options.CLIENT_TOKEN, options.CLIENT_TOKEN_FILE, options.CLIENT_OAUTH2_URL)
    has_token = any(config.is_set(login) for login in logins)
    with closing(open_server(server)) as door:
        facts = gather(door, probe=probe, table=table, has_token=has_token, config=config)
    healthy = f"all is well: {len(CHECKS)} checks of {table or counted(len(facts.tables), 'table')}"
    _tell(examine(facts, table), as_json=as_json, healthy=healthy)


def _examine_cluster(fluss: str, user: str | None, table: str | None, *, as_json: bool) -> None:
    from lakeward.cli.doctor.fluss import examine_cluster
    from lakeward.hot.fluss.clusterview import ClusterView
    from lakeward.server.live.consolenote import console_folder, load_note

    with open_fluss(fluss, user) as plugin:
        console = load_note(console_folder(resolve().get(options.SERVER_DATA_DIR), plugin.servers.bootstrap))
        view = ClusterView(plugin)
        tables = view.views() if table is None else [view.look_at(view.lake_table(TablePath.parse(table)))]
    seen = "no console of this machine" if console is None else "the console's live files"
    checked = f"lag, lake and delete files of {counted(len(tables), 'lake table')}, {seen}"
    checked += "; settings of jobs are not visible here"
    healthy = f"nothing wrong was found: checked {checked}" if tables else "the cluster has no lake tables"
    now_ms = SystemClock().now_ms()
    _tell(examine_cluster(tables, fluss, console, now_ms), as_json=as_json, healthy=healthy)


def preflight(
    data: Annotated[Path | None, typer.Option("--data", help="The data folder that the server will have.")] = None,
    as_json: Json = False,
) -> None:
    """Says what would go wrong at the first start: settings, ports, folder, limits, Java, packages, the lake. Starts
    nothing.

    Example: lakeward preflight --data ./lakeward-data"""
    from lakeward.cli.doctor.preflight import examine_start, gather_start

    config = resolve(arguments={options.SERVER_DATA_DIR.key: str(data)} if data is not None else {})
    _tell(examine_start(gather_start(config)), as_json=as_json, healthy="ready to start")


def _tell(findings: Sequence[Diagnosis], *, as_json: bool, healthy: str) -> None:
    if as_json:
        print_json({"findings": [f.to_json() for f in findings]})
    elif not findings:
        print(healthy)
    for finding in findings if not as_json else ():
        print(escape(f"{finding.level.upper():5}  {finding.about}: {finding.figure}"))
        print(escape(f"       {finding.why}"))
        print(escape(f"       -> {finding.mend}"))
    if any(f.level is Level.WRONG for f in findings):
        if not as_json:
            note(f"{sum(f.level is Level.WRONG for f in findings)} wrong now, {len(findings)} in all")
        raise typer.Exit(1)
