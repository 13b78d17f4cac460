# SPDX-License-Identifier: Apache-2.0
"""`lakeward what-if`: which tables would be late with other tables, freshness or slots, by the scheduler itself."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from statistics import median
from typing import Annotated, Any

import typer

from lakeward.cli.connection import open_server
from lakeward.cli.output import Json, Server, counted, duration, print_json, print_rows
from lakeward.config import kinds
from lakeward.errors import InvalidRequest
from lakeward.protocol import routes
from lakeward.protocol.codec import decode, encode
from lakeward.protocol.operate import AdmissionAnswer, AdmissionQuery, AdmissionRow

MOST_TABLES, SHOWN = 1_500, 20
_UNMEASURED_MS = 2_000
"""A round of a new table where no table was measured yet."""


def register(app: typer.Typer) -> None:
    app.command("what-if")(what_if)


def what_if(
    tables: Annotated[str | None, typer.Option("--tables", help="So many tables more, as +200.")] = None,
    freshness: Annotated[
        str | None, typer.Option("--freshness", help="Of the added tables; without --tables, of all tables.")
    ] = None,
    round_: Annotated[
        str | None, typer.Option("--round", help="What a round of an added table takes; default: as the median table.")
    ] = None,
    slots: Annotated[int | None, typer.Option("--slots", min=1, help="Slots; default: those of the live jobs.")] = None,
    last: Annotated[
        str, typer.Option("--last", help="Replay the busiest stretch of this time; 0: rows all the time.")
    ] = "1 d",
    pool: Annotated[str, typer.Option("--pool", help="The pool of jobs.")] = "default",
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Replays recent arrivals on the scheduler with a virtual clock, with the changes that you name, and shows which
    tables would be late. Changes nothing. Exit code 1 when a table would be late.

    Example: lakeward what-if --tables +200 --freshness 10s --slots 3"""
    added, goal_ms = _count(tables), _ms("--freshness", freshness)
    query = AdmissionQuery(slots=slots, pool=pool, replay_ms=_ms("--last", last) or 0)
    with closing(open_server(server)) as connection:
        if added or goal_ms is not None:
            query = _changed(
                query, _ask(connection, replace(query, replay_ms=0)).rows, added, goal_ms, _ms("--round", round_)
            )
        answer = _ask(connection, query)
    if as_json:
        print_json({**encode(answer), "replayed_ms": query.replay_ms})
    else:
        _print(answer, query)
    if not answer.feasible:
        raise typer.Exit(1)


def _changed(
    query: AdmissionQuery, rows: tuple[AdmissionRow, ...], added: int, goal_ms: int | None, round_ms: int | None
) -> AdmissionQuery:
    if not added:
        return replace(query, freshness_ms={row.table: goal_ms or row.freshness_ms for row in rows})
    names = [f"new-{number}" for number in range(1, added + 1)]
    usual_ms = int(median(row.round_ms for row in rows)) if rows else _UNMEASURED_MS
    return replace(
        query,
        freshness_ms=dict.fromkeys(names, goal_ms or 180_000),
        round_ms=dict.fromkeys(names, round_ms or max(1, usual_ms)),
    )


def _print(answer: AdmissionAnswer, query: AdmissionQuery) -> None:
    print(answer.words)
    late = sorted((row for row in answer.rows if row.misses or not row.feasible), key=lambda row: -row.worst_lag_ms)
    if late:
        print_rows(
            ("table", "freshness", "a round takes", "worst lag", "late rounds"),
            [
                (
                    row.table,
                    duration(row.freshness_ms),
                    duration(row.round_ms),
                    duration(row.worst_lag_ms),
                    str(row.misses),
                )
                for row in late[:SHOWN]
            ],
        )
        if len(late) > SHOWN:
            print(f"and {counted(len(late) - SHOWN, 'table')} more; --json lists all")
    source = (
        f"arrivals of the last {duration(query.replay_ms)}" if query.replay_ms else "rows in every table all the time"
    )
    print(f"simulated: {duration(answer.simulated_ms)} of {source}, slots in use {answer.utilisation:.0%}")


def _ask(connection: Any, query: AdmissionQuery) -> AdmissionAnswer:
    return decode(AdmissionAnswer, connection.ask("POST", routes.ADMISSION, query))


def _count(text: str | None) -> int:
    if text is None:
        return 0
    number = text.removeprefix("+")
    if not number.isdigit() or not 0 < int(number) <= MOST_TABLES:
        raise InvalidRequest(what="--tables", reason=f"{text!r} is not a number from +1 to +{MOST_TABLES}")
    return int(number)


def _ms(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return kinds.duration().parse(text) // timedelta(milliseconds=1)
    except ValueError as error:
        raise InvalidRequest(what=option, reason=str(error)) from error
