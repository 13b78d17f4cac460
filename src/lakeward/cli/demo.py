# SPDX-License-Identifier: Apache-2.0
"""`lakeward demo`: server, job and load on this machine; at the end hot store and lake are compared row for row."""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakeward.cli.children import choose_port
from lakeward.cli.demoload import CLICKS, ORDERS, DemoLoad
from lakeward.cli.demoview import say, watch
from lakeward.cli.up import Supervisor
from lakeward.errors import TimedOut
from lakeward.model.table import TablePath
from lakeward.protocol import routes
from lakeward.protocol.routes import DEFAULT_PORT

if TYPE_CHECKING:
    from lakeward.client import Client

TIER_LIMIT_S = 60.0


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    seconds: Annotated[float, typer.Option(min=1, help="How long the load runs.")] = 60.0,
    freshness: Annotated[str, typer.Option(help="The freshness of both tables.")] = "10 s",
    data: Annotated[Path | None, typer.Option(help="The data folder; a temporary one by default.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave it running afterwards, until Ctrl-C.")] = False,
) -> None:
    """Shows Lakeward at work: two tables, rounds on Spark into Iceberg, and a check that nothing is lost or doubled.

    Example: lakeward demo --seconds 20"""
    with tempfile.TemporaryDirectory(prefix="lakeward-demo-") as made:
        folder = data or Path(made)
        supervisor = Supervisor(folder, choose_port(DEFAULT_PORT), slots=2, master="local[2,4]", job_name="demo")
        try:
            agreed = _run(supervisor, seconds, freshness)
            if keep:
                _wait_for_stop(supervisor.url)
        finally:
            supervisor.stop()
    if not agreed:
        raise typer.Exit(1)


def _run(supervisor: Supervisor, seconds: float, freshness: str) -> bool:
    from lakeward.client import connect

    say("Starting a server (hot store, coordinator, Iceberg catalog) and a tiering job (Spark, on this machine).")
    url = supervisor.start()
    say(f"Dashboard: {url}")
    with connect(url) as client:
        load = DemoLoad(client)
        load.create_tables(freshness)
        say(f"Made {CLICKS} (a log table) and {ORDERS} (a table with a primary key); the lake may be {freshness} behind, no more.")
        load.start()
        worst = watch(client, load, url, seconds, _alive(supervisor))
        load.stop()
        if load.failure is not None:
            raise load.failure
        say(f"Load stopped: {load.clicks:,} clicks and {load.changes:,} order changes were acknowledged.")
        say(f"Worst lag seen: {worst:.2f} of the freshness. Waiting until the lake has everything.")
        for table in (CLICKS, ORDERS):
            _tier_now(client, table)
        agreed = _check(client, load)
        _show_queries(client)
    _say_next(url, agreed)
    return agreed


def _tier_now(client: Client, table: str) -> None:
    path = routes.TIER_NOW.format(table=TablePath.parse(table))
    client.server.ask("POST", path, params={"limit_s": TIER_LIMIT_S}, timeout_s=TIER_LIMIT_S + 10)


def _check(client: Client, load: DemoLoad) -> bool:
    """Ledger, lake and hot store by `verify --deep`, then the lake against what the producers recorded."""
    from lakeward.cli.verify import print_certificate
    from lakeward.verify import verify_table

    say("")
    certificates = [verify_table(client.plugin, TablePath.parse(t), deep=True) for t in (CLICKS, ORDERS)]
    for certificate in certificates:
        print_certificate(certificate)
    orders = {r["id"]: r for r in client.read(ORDERS, mode="lake").to_table().to_pylist()}
    clicks = client.read(CLICKS, mode="lake", columns=["user_id"]).to_table().num_rows
    same = orders == load.orders and clicks == load.clicks
    say(f"The lake holds {clicks:,} clicks and {len(orders):,} orders; the producers recorded {load.clicks:,} and {len(load.orders):,}.")
    return same and all(c.holds for c in certificates)


def _show_queries(client: Client) -> None:
    from lakeward.cli.duckdblake import query_lake
    from lakeward.cli.sqlquery import run_sql

    say("")
    say("The same query on the lake files alone (DuckDB reading Iceberg) and as a union read (lake plus hot tail):")
    query = "SELECT status, count(*) AS orders, sum(total) AS total FROM {orders} GROUP BY status ORDER BY status"
    lake = query_lake(client, ORDERS, query.replace("{orders}", "lake"))
    union, _ = run_sql(client, query.replace("{orders}", ORDERS))
    for name, rows in (("lake ", lake), ("union", union.to_pylist())):
        say(f"  {name}: " + "  ".join(f"{r['status']} {r['orders']:,} orders {r['total']:,}" for r in rows))


def _say_next(url: str, agreed: bool) -> None:
    say("")
    if not agreed:
        say("Hot store and lake do NOT agree; see above.")
        return
    say("Hot store and lake agree row for row: no row lost, doubled or altered.")
    say("Try next:")
    say("  lakeward up                                   a server and a job of your own, dashboard included")
    say('  lakeward table create shop.orders "id bigint not null, total decimal(10,2)" --primary-key id --freshness "30 s"')
    say('  lakeward sql "SELECT count(*) FROM shop.orders"')


def _alive(supervisor: Supervisor) -> Callable[[], None]:
    def check() -> None:
        for child in (supervisor.server, supervisor.job):
            if child.exit_code is not None:
                state = f"it ended with code {child.exit_code}; its log ends:\n{child.last_lines()}"
                raise TimedOut(what=f"the {child.name}", limit_s=0, state=state)

    return check


def _wait_for_stop(url: str) -> None:
    say(f"Still running: {url}; Ctrl-C stops it.")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
