# SPDX-License-Identifier: Apache-2.0
"""`lakeward pause`, `resume`, `tier-now`: what operators do to a table."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from lakeward.cli.cluster import Fluss, FlussUser, check_no_server, tier_cluster_now
from lakeward.cli.connection import open_server
from lakeward.cli.output import Json, Lake, Server, Table, counted, duration, lake_params, print_json
from lakeward.cli.roundprogress import watching
from lakeward.model import TablePath
from lakeward.protocol import routes


def register(app: typer.Typer) -> None:
    app.command("pause")(pause)
    app.command("resume")(resume)
    app.command("tier-now")(tier_now)


def pause(table: Table, lake: Lake = None, server: Server = None, as_json: Json = False) -> None:
    """Stops rounds of a table until it is resumed. Its rows stay in the hot store.

    Example: lakeward pause shop.orders"""
    _post(routes.PAUSE, table, lake, server, as_json, f"{_called(table, lake)} is paused")


def resume(table: Table, lake: Lake = None, server: Server = None, as_json: Json = False) -> None:
    """Ends a pause or a quarantine.

    Example: lakeward resume shop.orders"""
    _post(routes.RESUME, table, lake, server, as_json, f"{_called(table, lake)} goes on")


def tier_now(
    table: Table,
    limit: Annotated[float, typer.Option(help="Seconds to wait at the most.")] = 120.0,
    lake: Lake = None,
    server: Server = None,
    fluss: Fluss = None,
    fluss_user: FlussUser = None,
    as_json: Json = False,
) -> None:
    """Returns when everything acknowledged before the call is in the lake. Of a Fluss cluster: the table comes due now,
    and where no job asks for it within three seconds the round runs here.

    Example: lakeward tier-now shop.orders"""
    if fluss is not None:
        check_no_server(server, lake)
        tier_cluster_now(fluss, fluss_user, table, limit, as_json=as_json)
        return
    with closing(open_server(server)) as door:
        path = routes.TIER_NOW.format(table=TablePath.parse(table))
        with watching(server, table):
            body = door.ask("POST", path, params={"limit_s": limit, **lake_params(lake)}, timeout_s=limit + 10)
    if as_json:
        print_json(body)
    else:
        where = "the lake" if lake is None else f"lake {lake}"
        print(f"{table} is in {where}: {counted(body['rounds'], 'round')}, {duration(body['took_ms'])}")


def _called(table: str, lake: str | None) -> str:
    return table if lake is None else f"{table} in lake {lake}"


def _post(route: str, table: str, lake: str | None, server: str | None, as_json: bool, words: str) -> None:
    with closing(open_server(server)) as door:
        body = door.ask("POST", route.format(table=TablePath.parse(table)), params=lake_params(lake))
    print_json(body) if as_json else print(words)
