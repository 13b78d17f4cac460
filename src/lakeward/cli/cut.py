# SPDX-License-Identifier: Apache-2.0
"""`lakeward cut`: one moment across tables, kept for reads."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote

import typer

from lakeward.cli.connection import open_server
from lakeward.cli.output import Json, Server, duration, note, print_json, print_rows
from lakeward.config.kinds import duration as parse_duration
from lakeward.errors import CutNotReady, InvalidRequest
from lakeward.protocol import routes

group = typer.Typer(help="One moment across tables: create, schedule, list, drop.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="The cut's name: letters, digits, - and _.")]

POLL_S = 0.5


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="cut")


@group.callback()
def cut() -> None:
    """One moment across tables: create, list, drop."""


@group.command("create")
def create_cut(
    name: Name,
    tables: Annotated[str, typer.Option(help="Tables, comma-separated: shop.orders,shop.payments.")],
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait until it can be read; 0: not at all.")] = 0,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Freezes the tables together: who wrote to one table, had its answer, and then wrote to another, is in the cut
    with both, with the first alone, or with none. It can be read once lakes have it.

    Example: lakeward cut create month-end --tables shop.orders,shop.payments --wait 60"""
    named = [text.strip() for text in tables.split(",") if text.strip()]
    with closing(open_server(server)) as door:
        body = door.ask("POST", routes.CUTS, {"name": name, "tables": named}, repeatable=False)
        ends_at = time.monotonic() + wait
        while body["state"] == "open" and time.monotonic() < ends_at:
            time.sleep(POLL_S)
            body = door.ask("GET", _route(name))
    if as_json:
        print_json(body)
    else:
        print(f"cut {name} of {', '.join(named)} is {body['state']}")
        for words in body["notes"]:
            note(words)
    if wait and body["state"] != "ready":
        raise CutNotReady(cut=name, state=body["state"], reason=f"after {wait:g} s {'; '.join(body['notes'])}")


@group.command("schedule")
def schedule_cuts(
    name: Name,
    tables: Annotated[str, typer.Option(help="Tables, comma-separated: shop.orders,shop.payments.")],
    every: Annotated[str, typer.Option(help="How often: 1h, 30min, 1d.")],
    keep: Annotated[int, typer.Option(min=1, help="How many that can be read are kept; older ones are dropped.")] = 24,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """A cut every so often, called NAME-<its time in UTC>, the first one at once. The next one waits until lakes have
    the last one.

    Example: lakeward cut schedule hourly --tables shop.orders,shop.payments --every 1h --keep 24"""
    named = [text.strip() for text in tables.split(",") if text.strip()]
    every_ms = round(_parse_every(every).total_seconds() * 1000)
    with closing(open_server(server)) as door:
        schedule = {"name": name, "tables": named, "every_ms": every_ms, "keep": keep}
        body = door.ask("POST", routes.CUT_SCHEDULES, schedule, repeatable=False)
    if as_json:
        print_json(body)
    else:
        print(f"cuts {name}-<time> of {', '.join(named)} are made every {duration(every_ms)}; {keep} are kept")


@group.command("unschedule")
def unschedule_cuts(name: Name, server: Server = None, as_json: Json = False) -> None:
    """Ends a schedule: no more cuts are made, those that are there stay.

    Example: lakeward cut unschedule hourly"""
    with closing(open_server(server)) as door:
        door.ask("DELETE", routes.CUT_SCHEDULE.format(schedule=quote(name, safe="")))
    if as_json:
        print_json({"unscheduled": name})
    else:
        print(f"cut schedule {name} is ended; its cuts stay")


@group.command("list")
def list_cuts(server: Server = None, as_json: Json = False) -> None:
    """Every cut, oldest first: open (lakes are on their way), ready (it can be read), or lost (it never will be).

    Example: lakeward cut list"""
    with closing(open_server(server)) as door:
        listed = door.ask("GET", routes.CUTS)["cuts"]
        schedules = door.ask("GET", routes.CUT_SCHEDULES)["schedules"]
    if as_json:
        print_json({"cuts": listed, "schedules": schedules})
        return
    print_rows(("cut", "state", "made at", "tables"), [_row(body) for body in listed], empty="no cuts")
    for body in listed:
        for words in body["notes"]:
            note(f"{body['cut']['name']}: {words}")
    if schedules:
        print_rows(("schedule", "every", "keeps", "next", "tables"), [_schedule_row(body) for body in schedules])
    for body in schedules:
        if body["trouble"]:
            note(f"{body['schedule']['name']}: {body['trouble']}")


@group.command("drop")
def drop_cut(name: Name, server: Server = None, as_json: Json = False) -> None:
    """Lets go of a cut: its snapshots expire like others.

    Example: lakeward cut drop month-end"""
    with closing(open_server(server)) as door:
        door.ask("DELETE", _route(name))
    if as_json:
        print_json({"dropped": name})
    else:
        print(f"cut {name} is dropped")


def _row(body: dict[str, Any]) -> tuple[str, ...]:
    made_at = datetime.fromtimestamp(body["cut"]["created_at_ms"] / 1000, UTC).isoformat(timespec="seconds")
    return body["cut"]["name"], body["state"], made_at, ", ".join(t["path"] for t in body["cut"]["tables"])


def _schedule_row(body: dict[str, Any]) -> tuple[str, ...]:
    schedule, next_at = body["schedule"], datetime.fromtimestamp(body["next_at_ms"] / 1000, UTC)
    kept = f"{len(body['cuts'])} of {schedule['keep']}"
    every = duration(schedule["every_ms"])
    return schedule["name"], every, kept, next_at.isoformat(timespec="seconds"), ", ".join(schedule["tables"])


def _parse_every(text: str) -> timedelta:
    try:
        return parse_duration().parse(text)
    except ValueError as error:
        raise InvalidRequest(what=f"--every {text}", reason=str(error)) from None


def _route(name: str) -> str:
    return routes.CUT.format(cut=quote(name, safe=""))
