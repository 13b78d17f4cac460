# SPDX-License-Identifier: Apache-2.0
"""`lakeward doctor --fluss`: what is wrong with the lake tables of a Fluss cluster, from what cluster and lakes show.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lakeward.cli.doctor.checks.lakes import examine_live
from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.output import counted, duration, moment, size
from lakeward.hot.fluss.clusterview import LATE, REFUSED, UNREADABLE, TableView
from lakeward.server.live.consolenote import ConsoleNote

MANY_DELETES = 8
"""Delete files of a table, where there are as many as data files: the fan-in of compactions."""


def examine_cluster(
    tables: Sequence[TableView], address: str, console: ConsoleNote | None = None, now_ms: int = 0
) -> list[Diagnosis]:
    """Sorted: what is wrong now comes first. `console`: what this machine's console noted last, at which time."""
    found = [finding for table in tables for finding in _examine(table, address)]
    if console is not None:
        found += _examine_console(console, {t.path: t.waiting for t in tables}, address, now_ms)
    return sorted(found, key=lambda d: (d.level is not Level.WRONG, d.about))


def _examine_console(
    console: ConsoleNote, waiting: Mapping[str, int], address: str, now_ms: int
) -> Iterator[Diagnosis]:
    if not console.is_silent(now_ms):
        yield from examine_live(console.facts, waiting, about="console", cluster=f" --fluss {address}")
    elif console.answers:
        yield Diagnosis(
            check="live",
            level=Level.SOON,
            about="console",
            figure=f"files of {counted(console.answers, 'live answer')} ({size(console.facts.bytes)}) are in the lake, "
            f"and the console on this machine was last seen {moment(console.at_ms)} UTC",
            why=f"Only a console deletes them, {duration(console.keep_ms)} after it starts.",
            mend=f"lakeward console --fluss {address}",
        )


def _examine(table: TableView, address: str) -> Iterator[Diagnosis]:
    if table.state == REFUSED:
        yield Diagnosis(
            check="supported",
            level=Level.SOON,
            about=table.path,
            figure=table.reason or "it is refused",
            why="Jobs of Lakeward give this table back: without Fluss's Flink job nothing tiers it.",
            mend="change what the reason names, or run Fluss's Flink job for this table",
        )
    elif table.state == UNREADABLE:
        yield Diagnosis(
            check="lake",
            level=Level.WRONG,
            about=table.path,
            figure=table.reason or "it cannot be read",
            why="Neither its rounds nor its lag can be checked; rounds fail for the same reason.",
            mend=f"once the lake answers: lakeward verify {table.path} --fluss {address}",
        )
    elif table.state == LATE:
        never = table.last_commit_at_ms is None
        last = (
            "no job has committed to it"
            if never
            else f"{table.job} committed last, {moment(table.last_commit_at_ms)} UTC"
        )
        yield Diagnosis(
            check="freshness",
            level=Level.WRONG,
            about=table.path,
            figure=f"{duration(table.lag_ms)} behind, {duration(table.freshness_ms)} wanted, "
            f"{counted(table.waiting, 'record')} waiting; {last}",
            why="No job runs, jobs are too slow, or each round fails; Fluss does not say which. A job's log does.",
            mend=f"lakeward tier --fluss {address}" if never else f"lakeward tier-now {table.path} --fluss {address}",
        )
    yield from _examine_deletes(table, address)


def _examine_deletes(table: TableView, address: str) -> Iterator[Diagnosis]:
    totals = table.totals
    if totals is not None and totals.delete_files >= max(MANY_DELETES, totals.data_files):
        yield Diagnosis(
            check="deletes",
            level=Level.SOON,
            about=table.path,
            figure=f"{counted(totals.delete_files, 'delete file')} on {counted(totals.data_files, 'data file')}",
            why="Every reader of the table reads them too.",
            mend=f"lakeward maintain {table.path} --fluss {address} --now",
        )
