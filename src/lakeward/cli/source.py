# SPDX-License-Identifier: Apache-2.0
"""`lakeward source`: what brings rows in, how far it has come, and how far it is behind."""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

import typer

from lakeward.cli.connection import open_server
from lakeward.cli.output import Json, Server, counted, moment, note, print_json, print_rows, size
from lakeward.errors import InvalidRequest, TimedOut
from lakeward.protocol import routes

group = typer.Typer(help="Sources of rows: create, list, show, pause, resume, cut, drop.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="The source's name.")]
POLL_S, HOLD_S = 0.3, 60.0


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="source")


@group.callback()
def source() -> None:
    """Sources of rows: create, list, show, pause, resume, cut, drop."""


@group.command("create")
def create_source(
    name: Name,
    origin: Annotated[str, typer.Argument(help="As `lakeward ingest` takes it; a password is not stored.")],
    options: Annotated[
        str, typer.Option(help='A JSON object with the options of `lakeward ingest`, as {"to": "shop"}.')
    ] = "{}",
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Registers a source without running it; `lakeward ingest NAME` runs it.

    Example: lakeward source create shop postgres://me@db.example/shop --options '{"to": "shop"}'"""
    from lakeward.spi.registry import load_source

    try:
        settings = json.loads(options)
    except ValueError as error:
        raise InvalidRequest(what="--options", reason=f"not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise InvalidRequest(what="--options", reason="it is not a JSON object")
    kind = load_source(urlsplit(origin).scheme)
    body = {"name": name, "kind": kind.name, "config": dict(kind.configure(origin, settings))}
    with closing(open_server(server)) as door:
        made = door.ask("POST", routes.SOURCES, body, repeatable=False)
    if as_json:
        print_json(made)
    else:
        print(f"source {name} ({kind.name}) is created; run it with `lakeward ingest {name}`")


@group.command("list")
def list_sources(server: Server = None, as_json: Json = False) -> None:
    """Every source: its phase, its position, and how far it is behind.

    Example: lakeward source list"""
    with closing(open_server(server)) as door:
        listed = door.ask("GET", routes.SOURCES)["sources"]
    if as_json:
        print_json(listed)
        return
    rows = [
        (s["source"]["name"], s["source"]["kind"], s["phase"], s["position"] or None, s["source"]["rows"], lag(s))
        for s in listed
    ]
    print_rows(("source", "kind", "phase", "position", "rows", "behind"), rows, empty="no sources")
    for status in listed:
        if status["error"]:
            note(f"{status['source']['name']}: {status['error']}")


@group.command("show")
def show_source(name: Name, server: Server = None, as_json: Json = False) -> None:
    """One source with its configuration and position.

    Example: lakeward source show shop"""
    with closing(open_server(server)) as door:
        body = door.ask("GET", _path(routes.SOURCE, name))
    if as_json:
        print_json(body)
        return
    info = body["source"]
    facts = {
        "kind": info["kind"],
        "phase": body["phase"],
        "position": body["position"] or "-",
        "behind": lag(body),
        "rows": f"{info['rows']:,} in {counted(info['group'], 'group')}",
        "tables": ", ".join(info["tables"]) or "-",
        "last rows": moment(info["committed_at_ms"]),
        "last report": moment(body["beat_at_ms"]),
        **{key: _shown(value) for key, value in info["config"].items() if value},
    }
    print_rows((name, ""), facts.items())
    if body["error"]:
        note(body["error"])


@group.command("pause")
def pause_source(name: Name, server: Server = None, as_json: Json = False) -> None:
    """Stores no more rows until it is resumed. A Postgres slot keeps log meanwhile.

    Example: lakeward source pause shop"""
    _change(routes.SOURCE_PAUSE, name, server, as_json, "is paused")


@group.command("resume")
def resume_source(name: Name, server: Server = None, as_json: Json = False) -> None:
    """Ends a pause. A stopped ingest process has ended: start it again.

    Example: lakeward source resume shop"""
    _change(routes.SOURCE_RESUME, name, server, as_json, "is resumed")


@group.command("cut")
def cut_source(
    name: Name,
    cut: Annotated[str, typer.Argument(help="The cut's name.")],
    at: Annotated[str | None, typer.Option("--at", help="Postgres: the LSN; without it, now.")] = None,
    limit: Annotated[float, typer.Option(help="Seconds to wait for the position.")] = 120,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """A cut of all tables of the source at one position: every transaction below it is in the cut, and none above.

    Example: lakeward source cut shop month-end --at 0/1A2B3C4D"""
    with closing(open_server(server)) as door:
        held_at = hold(door, name, at or "now", limit)
        try:
            tables = door.ask("GET", _path(routes.SOURCE, name))["source"]["tables"]
            body = door.ask("POST", routes.CUTS, {"name": cut, "tables": tables}, repeatable=False)
        finally:
            release(door, name)
    if as_json:
        print_json({**body, "position": held_at})
    else:
        print(f"cut {cut} of {counted(len(tables), 'table')} is at {held_at}")


@group.command("drop")
def drop_source(
    name: Name,
    url: Annotated[
        str | None, typer.Option(help="The origin with its password, where the stored one lacks it.")
    ] = None,
    keep_origin: Annotated[bool, typer.Option(help="Leave the slot and publication of Postgres as they are.")] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Forgets a source and its position, and removes what its origin keeps for it. Tables and rows stay.

    Example: lakeward source drop shop"""
    done: list[str] = []
    with closing(open_server(server)) as door:
        info = door.ask("GET", _path(routes.SOURCE, name))["source"]
        if not keep_origin and info["state"]:
            from lakeward.spi.registry import load_source

            opened = load_source(info["kind"]).open(info["config"], url)
            with closing(opened):
                done = list(opened.drop(info["state"]))
        door.ask("DELETE", _path(routes.SOURCE, name))
    if as_json:
        print_json({"dropped": name, "origin": done})
        return
    print(f"source {name} is dropped; its tables stay")
    for line in done:
        note(line)


def verify_postgres(name: str, server: str | None, as_json: bool) -> None:
    """Exit code 1 where a table differs."""
    from lakeward.cli.connection import open_client
    from lakeward.source.postgres.origin import Origin
    from lakeward.source.postgres.verify import MomentOfOrigin, compare_tables

    with open_client(server) as client:
        door = client.server
        info = door.ask("GET", _path(routes.SOURCE, name))["source"]
        if info["kind"] != "postgres":
            raise InvalidRequest(what=f"--postgres {name}", reason=f"the source is of kind {info['kind']}")
        origin = Origin(name, info["config"]["url"])
        hold(door, name, "now", HOLD_S)
        try:
            with closing(origin), closing(MomentOfOrigin(origin, f"lakeward_verify_{int(time.time())}")) as moment_:
                hold(door, name, moment_.lsn, HOLD_S)
                compared = []
                for result in compare_tables(origin, client, info["config"], info["state"], moment_.snapshot):
                    compared.append(result)
                    door.ask("POST", _path(routes.SOURCE_HOLD, name), {"position": moment_.lsn, "lease_s": HOLD_S})
                lsn = moment_.lsn
        finally:
            release(door, name)
    if as_json:
        print_json({"source": name, "lsn": lsn, "tables": [{**vars(c), "equal": c.is_equal} for c in compared]})
    else:
        for c in compared:
            counts = f"{c.missing:,} missing, {c.surplus:,} surplus, {c.different:,} different"
            print(f"{c.table} = {c.to} at {lsn}: {'equal' if c.is_equal else counts}, {c.rows:,} rows")
            for example in c.examples:
                note(f"  {example}")
    if not all(c.is_equal for c in compared):
        raise typer.Exit(1)


def hold(door: Any, name: str, position: str, limit_s: float) -> str:
    """Holds the ingest process there; where it stands then. Raises `TimedOut`, `InvalidRequest`."""
    ends_at = time.monotonic() + limit_s
    while True:
        body = door.ask("POST", _path(routes.SOURCE_HOLD, name), {"position": position, "lease_s": HOLD_S})
        if body["phase"] in ("waiting", "paused", "stopped"):
            reason = f"the source is {body['phase']}: `lakeward ingest {name}` must run"
            raise InvalidRequest(what=f"hold of source {name}", reason=reason)
        if body["held_at"] is not None and (position == "now" or body["held_at"] == position):
            return str(body["held_at"])
        if time.monotonic() > ends_at:
            release(door, name)
            raise TimedOut(what=f"source {name} to reach {position}", limit_s=limit_s, state=f"at {body['position']}")
        time.sleep(POLL_S)


def release(door: Any, name: str) -> None:
    door.ask("POST", _path(routes.SOURCE_HOLD, name), {"position": None})


def lag(body: dict[str, Any]) -> str:
    """`120 messages, 3 kB, 0.4 s`; a slot's log where it is more than that."""
    behind = body["lag"]
    parts = []
    if behind["messages"] is not None:
        parts.append(counted(behind["messages"], "message"))
    if behind["bytes"] is not None:
        parts.append(size(behind["bytes"]))
    if behind["seconds"] is not None:
        parts.append(f"{behind['seconds']:.1f} s")
    if behind["slot_bytes"] is not None:
        parts.append(f"slot keeps {size(behind['slot_bytes'])}")
    return ", ".join(parts) or "-"


def _change(route: str, name: str, server: str | None, as_json: bool, words: str) -> None:
    with closing(open_server(server)) as door:
        body = door.ask("POST", _path(route, name))
    if as_json:
        print_json(body)
    else:
        print(f"source {name} {words}")


def _path(route: str, name: str) -> str:
    return route.format(source=quote(name, safe=""))


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
