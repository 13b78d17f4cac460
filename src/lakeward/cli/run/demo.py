# SPDX-License-Identifier: Apache-2.0
"""`lakeward demo`: server, job and load on this machine; at the end hot store and lake are compared row for row."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from lakeward.cli.output import print_json
from lakeward.cli.run.children import choose_port
from lakeward.cli.run.demoload import CLICKS, ORDERS, DemoLoad
from lakeward.cli.run.demoview import Story, watch
from lakeward.cli.run.up import Supervisor
from lakeward.errors import StartFailed, TimedOut
from lakeward.model import StopSignal, TablePath
from lakeward.protocol import routes
from lakeward.protocol.routes import DEFAULT_PORT

if TYPE_CHECKING:
    from lakeward.client import Client

TIER_LIMIT_S = 60.0
JOB_LIMIT_S, JOB_WORD_S = 600.0, 15.0
"""Spark starts in 5 to 10 s on a quiet machine, and in minutes on one that has much else to do: as long as the process
lives it is waited for, with a word every now and then. The limit is for a process that hangs."""


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    seconds: Annotated[float, typer.Option(min=1, help="How long the load runs.")] = 60.0,
    freshness: Annotated[str, typer.Option(help="The freshness of both tables.")] = "10 s",
    data: Annotated[Path | None, typer.Option(help="The data folder; a temporary one by default.")] = None,
    format: Annotated[
        str | None, typer.Option(help="The lake format: iceberg, paimon, delta, lance, hudi; else what is configured.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave it running afterwards, until Ctrl-C.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="The outcome for machines; the story goes to standard error.")
    ] = False,
) -> None:
    """Shows Lakeward at work: two tables, rounds on Spark into a lake, and a check that nothing is lost or doubled.

    Exit code 1 when hot store and lake do not agree.

    Example: lakeward demo --seconds 20"""
    say = Story(sys.stderr if as_json else sys.stdout)
    signal.signal(signal.SIGTERM, _stop_here)
    with tempfile.TemporaryDirectory(prefix="lakeward-demo-", ignore_cleanup_errors=True) as temporary:
        supervisor = Supervisor(
            data or Path(temporary),
            choose_port(DEFAULT_PORT),
            slots=2,
            master="local[2,4]",
            job_name="demo",
            lake=format,
        )
        try:
            outcome = _run(supervisor, seconds, freshness, say)
            if as_json:
                print_json(outcome)
            if keep:
                _wait_for_stop(supervisor, say)
        finally:
            supervisor.stop()
    if not outcome["agreed"]:
        raise typer.Exit(1)


def _run(supervisor: Supervisor, seconds: float, freshness: str, say: Story) -> dict[str, Any]:
    from lakeward.client import connect

    say("Starting a server (hot store, coordinator, catalog) and a tiering job (Spark, on this machine).")
    url, alive = supervisor.start(), _alive(supervisor)
    say(f"Dashboard: {url}")
    with connect(url) as client:
        load = DemoLoad(client)
        load.create_tables(freshness)
        say(
            f"Made {CLICKS} (a log table) and {ORDERS} (a table with a primary key); the lake may be {freshness} "
            f"behind, no more."
        )
        _wait_for_job(client, alive, say)
        say(f"The job is there. Rows come in for {seconds:g} s.")
        load.start()
        try:
            worst = watch(client, load, url, seconds, alive, say)
        finally:
            load.stop()
        if load.failure is not None:
            raise load.failure
        say(f"Load stopped: {load.clicks:,} clicks and {load.changes:,} order changes were acknowledged.")
        say(f"Worst lag seen: {worst:.2f} of the freshness. Waiting until the lake has everything.")
        for table in (CLICKS, ORDERS):
            _tier_now(client, table)
        agreed = _check(client, load, say)
        _show_queries(client, say)
    _say_next(agreed, say)
    return {
        "agreed": agreed,
        "url": url,
        "clicks": load.clicks,
        "orders": len(load.orders),
        "worst_lag_over_freshness": round(worst, 3),
    }


def _wait_for_job(client: Client, alive: Callable[[], None], say: Story) -> None:
    """Rows that came in before it is there would wait for Spark's start, and the lag would show that and
    nothing else.
    """
    since = word = time.monotonic()
    while not any(j["live"] for j in client.server.ask("GET", routes.JOBS)["jobs"]):
        alive()
        now = time.monotonic()
        if now - since > JOB_LIMIT_S:
            raise TimedOut(what="start of the job", limit_s=JOB_LIMIT_S, state="it has not registered with the server")
        if now - word > JOB_WORD_S:
            word = now
            say(f"Spark is still starting ({now - since:.0f} s).")
        time.sleep(0.1)


def _tier_now(client: Client, table: str) -> None:
    path = routes.TIER_NOW.format(table=TablePath.parse(table))
    client.server.ask("POST", path, params={"limit_s": TIER_LIMIT_S}, timeout_s=TIER_LIMIT_S + 10)


def _check(client: Client, load: DemoLoad, say: Story) -> bool:
    """Ledger, lake and hot store by `verify --deep`, then the lake against what the producers recorded."""
    from lakeward.cli.verify import print_certificate
    from lakeward.verify import verify_table

    say("")
    certificates = [verify_table(client.plugin, TablePath.parse(t), deep=True) for t in (CLICKS, ORDERS)]
    with contextlib.redirect_stdout(say.out):
        for certificate in certificates:
            print_certificate(certificate)
    orders = {r["id"]: r for r in client.read(ORDERS, mode="lake").to_table().to_pylist()}
    clicks = client.read(CLICKS, mode="lake", columns=["user_id"]).to_table().num_rows
    same = orders == load.orders and clicks == load.clicks
    say(
        f"The lake holds {clicks:,} clicks and {len(orders):,} orders; the producers recorded {load.clicks:,} and "
        f"{len(load.orders):,}."
    )
    return same and not any(c.is_failure for c in certificates)


def _show_queries(client: Client, say: Story) -> None:
    from lakeward.cli.sql.duckdblake import query_lake
    from lakeward.cli.sql.sqlquery import run_sql

    served = client.server.info().iceberg_uri is not None
    say("")
    say(
        f"The same query on the lake alone ({'DuckDB reading Iceberg' if served else 'as Lakeward reads it'}) and as a "
        f"union read (lake plus hot tail):"
    )
    query = "SELECT status, count(*) AS orders, sum(total) AS total FROM {orders} GROUP BY status ORDER BY status"
    union, _ = run_sql(client, query.replace("{orders}", ORDERS))
    if served:
        lake = query_lake(client, ORDERS, query.replace("{orders}", "lake"))
    else:
        lake = run_sql(client, query.replace("{orders}", ORDERS), mode="lake")[0].to_pylist()
    for name, rows in (("lake ", lake), ("union", union.to_pylist())):
        say(f"  {name}: " + "  ".join(f"{r['status']} {r['orders']:,} orders {r['total']:,}" for r in rows))


def _say_next(agreed: bool, say: Story) -> None:
    say("")
    if not agreed:
        say("Hot store and lake do NOT agree; see above.")
        return
    say("Hot store and lake agree row for row: no row lost, doubled or altered.")
    say("Try next:")
    program = as_typed()
    say(f"  {program} up    (a server and a job of your own, dashboard included)")
    columns = '"id bigint not null, total decimal(10,2)" --primary-key id --freshness "30 s"'
    say(f"  {program} table create shop.orders {columns}")
    say(f'  {program} sql "SELECT count(*) FROM shop.orders"')  # noqa: S608 - shown, not run


def as_typed() -> str:
    """How this program is called: by its name where the shell would find it, else by its path from here."""
    program, here = Path(sys.argv[0]).absolute(), Path.cwd()
    if program.name != "lakeward" or shutil.which("lakeward") == str(program):
        return "lakeward"
    return str(program.relative_to(here) if program.is_relative_to(here) else program)


def _alive(supervisor: Supervisor) -> Callable[[], None]:
    def check() -> None:
        for child in (supervisor.server, supervisor.job):
            if child.exit_code is not None:
                raise StartFailed(child=child.name, exit_code=child.exit_code, said=child.last_lines())

    return check


def _wait_for_stop(supervisor: Supervisor, say: Story) -> None:
    say(f"Still running: {supervisor.url}; Ctrl-C stops it.")
    stop = StopSignal()
    while not stop.wait(1.0):
        supervisor.watch()


def _stop_here(number: int, frame: object) -> NoReturn:
    """SIGTERM ends it as Ctrl-C does: server and job are stopped first."""
    raise SystemExit(128 + number)
