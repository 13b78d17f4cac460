# SPDX-License-Identifier: Apache-2.0
"""`lakeward status`, `jobs`, `rounds`, `explain`: what is going on, for people and machines."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated, Any

import typer

from lakeward.cli.adopt import spell_progress
from lakeward.cli.cluster import Fluss, FlussUser, check_no_server, show_jobs, show_next_round, show_rounds, show_status
from lakeward.cli.connection import open_client, open_server
from lakeward.cli.output import (
    Json,
    Lake,
    Server,
    Table,
    complete_table,
    duration,
    lake_params,
    moment,
    note,
    parse_lake,
    print_json,
    print_rows,
    side_label,
    size,
)
from lakeward.errors import InvalidRequest, TableNotFound
from lakeward.model import SideName, TablePath
from lakeward.protocol import routes


def register(app: typer.Typer) -> None:
    for command in (status, jobs, rounds, explain):
        app.command(command.__name__)(command)


def status(
    table: Annotated[
        str | None,
        typer.Argument(help="This table alone, with all its figures.", autocompletion=complete_table),
    ] = None,
    server: Server = None,
    fluss: Fluss = None,
    fluss_user: FlussUser = None,
    as_json: Json = False,
) -> None:
    """Every table's freshness and lag, and whether all is well. Exit code 1 when a table is late, failing, or does not
    reach its lake.

    Example: lakeward status"""
    if fluss is not None:
        check_no_server(server)
        if table is not None:
            raise InvalidRequest(what=f"status {table}", reason="with --fluss all tables are shown; leave the name out")
        show_status(fluss, fluss_user, as_json=as_json)
        return
    with closing(open_server(server)) as door:
        body = door.ask("GET", routes.STATUS)
    if table is not None:
        body = _of_table(body, table)
    if as_json:
        print_json(body)
    elif table is not None:
        for side in body["tables"]:
            print_rows(("", ""), _facts(side, body["tables"]))
    else:
        print_rows(
            ("table", "state", "freshness", "lag", "slack", "last round", "lake rows", "files", "failures"),
            [_table_row(t, body["tables"]) for t in body["tables"]],
            empty="no lake tables",
        )
        for t in body["tables"]:
            if t.get("reason"):
                print(f"{side_label(t, body['tables'])} is {t['state']}: {t['reason']}")
        for adoption in body.get("adoptions", ()):
            note(f"being adopted: {spell_progress(adoption)}")
        for warning in body.get("warnings", ()):
            note(f"warning: {warning}")
        for lake, error in body.get("lakes", {}).items():
            if error:
                note(f"warning: lake {lake} does not answer: {error}")
    if any(t["lag_ms"] > t["freshness_ms"] or t["state"] == "quarantined" or t.get("blocked") for t in body["tables"]):
        raise typer.Exit(1)


def jobs(server: Server = None, fluss: Fluss = None, fluss_user: FlussUser = None, as_json: Json = False) -> None:
    """Tiering jobs: who is live, who is missing, what each does now; of a Fluss cluster, who committed.

    Example: lakeward jobs"""
    if fluss is not None:
        check_no_server(server)
        show_jobs(fluss, fluss_user, as_json=as_json)
        return
    with closing(open_server(server)) as door:
        listed = door.ask("GET", routes.JOBS)["jobs"]
    if as_json:
        print_json(listed)
        return
    rows = [
        (
            j["name"],
            j.get("state") or ("live" if j["live"] else "silent"),
            j["pool"],
            "-" if j["slots"] is None else j["slots"],
            ", ".join(j["working_on"]) or "-",
            moment(j["last_beat_at_ms"]),
        )
        for j in listed
    ]
    print_rows(
        ("job", "state", "pool", "slots", "working on", "last beat (UTC)"),
        rows,
        empty="no job has registered; start one: lakeward tier",
    )


def rounds(
    table: Annotated[str | None, typer.Argument(help="Only this table's rounds.")] = None,
    limit: Annotated[int, typer.Option(help="How many, newest first.")] = 20,
    lake: Annotated[str | None, typer.Option("--lake", help="Only those of this lake.")] = None,
    server: Server = None,
    fluss: Fluss = None,
    fluss_user: FlussUser = None,
    as_json: Json = False,
) -> None:
    """Rounds that ended, each with its phases; of a Fluss cluster, the commits that the lake still knows.

    Example: lakeward rounds shop.orders --limit 5"""
    if fluss is not None:
        check_no_server(server, lake)
        show_rounds(fluss, fluss_user, table, limit, as_json=as_json)
        return
    params: dict[str, Any] = {"limit": limit, **({"table": table} if table else {}), **lake_params(lake)}
    with closing(open_server(server)) as door:
        listed = door.ask("GET", routes.ROUNDS, params=params)["rounds"]
    if as_json:
        print_json(listed)
        return
    print_rows(
        (
            "ended (UTC)",
            "table",
            "kind",
            "outcome",
            "rows",
            "deletes",
            "written",
            "wait",
            "plan",
            "write",
            "resolve",
            "commit",
            "job",
        ),
        [_round_row(r) for r in listed],
        empty="no round has ended yet",
    )


def explain(
    table: Table,
    lake: Lake = None,
    server: Server = None,
    fluss: Fluss = None,
    fluss_user: FlussUser = None,
    as_json: Json = False,
) -> None:
    """Where the table's lag comes from, and what its next round would do.

    Example: lakeward explain shop.orders"""
    if fluss is not None:
        check_no_server(server, lake)
        show_next_round(fluss, fluss_user, table, as_json=as_json)
        return
    with open_client(server) as client:
        route = routes.EXPLAIN.format(table=TablePath.parse(table))
        lag = client.server.ask("GET", route, params=lake_params(lake))
        plan = _next_round(client, table, parse_lake(lake))
    if as_json:
        print_json({"lag": lag, "next_round": plan})
        return
    print(lag["words"])
    parts = [(name, duration(ms)) for name, ms in lag["parts_ms"].items() if ms]
    if parts:
        print()
        print_rows(("part of the lag", "time"), parts)
    print()
    print_rows(
        ("bucket", "next round: split", "rows"),
        [(p["bucket"], p["split"], p["stop"] - p["start"]) for p in plan],
        empty=_NOTHING,
    )


_NOTHING = "the next round has nothing to do"


def _next_round(client: Any, table: str, side: SideName | None) -> list[dict[str, Any]]:
    from lakeward.tiering.round.explain import explain_round

    return list(explain_round(client.plugin, TablePath.parse(table), side))


def _of_table(body: dict[str, Any], table: str) -> dict[str, Any]:
    """Raises `TableNotFound`."""
    path = str(TablePath.parse(table))
    sides = [t for t in body["tables"] if t["path"] == path]
    if not sides:
        raise TableNotFound(table=path)
    return {"now_ms": body.get("now_ms"), "tables": sides}


def _facts(t: dict[str, Any], tables: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    late = ", late" if t["lag_ms"] > t["freshness_ms"] else ""
    return [
        ("table", side_label(t, tables)),
        ("state", t["state"]),
        *([("reason", t["reason"])] if t.get("reason") else []),
        ("freshness", duration(t["freshness_ms"])),
        ("lag", f"{duration(t['lag_ms'])}{late}"),
        ("rows that wait", t["waiting_rows"]),
        ("slack", duration(t["slack_ms"])),
        ("last round ended (UTC)", moment(t["last_tiered_at_ms"])),
        ("last round took", duration(t["last_duration_ms"])),
        ("failures, in a row", f"{t['failures']:,}, {t['failures_in_a_row']:,}"),
        ("job now", t["job"]),
        ("pool", t["pool"] if t["served"] else f"{t['pool']} (no live job serves it)"),
        ("lake rows", t["lake_rows"]),
        ("lake files", t["lake_files"]),
        ("lake size", size(t["lake_bytes"])),
        ("lake snapshots", t["lake_snapshots"]),
    ]


def _table_row(t: dict[str, Any], tables: list[dict[str, Any]]) -> tuple[Any, ...]:
    late = " !" if t["lag_ms"] > t["freshness_ms"] else ""
    return (
        side_label(t, tables),
        t["state"],
        duration(t["freshness_ms"]),
        "-" if t["state"] == "disabled" and not t.get("blocked") else duration(t["lag_ms"]) + late,
        duration(t["slack_ms"]),
        duration(t["last_duration_ms"]),
        t["lake_rows"],
        t["lake_files"],
        t["failures"],
    )


def _round_row(r: dict[str, Any]) -> tuple[Any, ...]:
    phases = [duration(r["phases"][f"{name}_s"] * 1000) for name in ("wait", "plan", "write", "resolve", "commit")]
    outcome = r["outcome"] if not r.get("error") else f"{r['outcome']}: {r['error']['message']}"
    outcome += f" (read with {', '.join(r['read_with'])})" if r.get("read_with") else ""
    return (
        moment(r["ended_at_ms"]),
        r["path"] if r.get("side", "default") == "default" else f"{r['path']} ({r['side']})",
        r.get("kind", "tier"),
        outcome,
        r["rows"],
        r["deletes"],
        size(r["bytes_written"]),
        *phases,
        r["job"],
    )
