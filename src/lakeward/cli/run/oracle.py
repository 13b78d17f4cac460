# SPDX-License-Identifier: Apache-2.0
"""`lakeward oracle`: writes, tiers, kills, lets other engines change the lake, and compares readers with a dict."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakeward.cli.output import Json, counted, print_json
from lakeward.cli.run.chaos import FORMATS
from lakeward.errors import InvalidRequest

if TYPE_CHECKING:
    from lakeward_testing.oracle.run import OracleReport


def register(app: typer.Typer) -> None:
    app.command("oracle")(oracle)


def oracle(
    seed: Annotated[int, typer.Option(help="Same seed, same tables, rows and steps.")] = 1,
    minutes: Annotated[float, typer.Option(help="How long to go on with new tables, for each seed.")] = 1.0,
    format: Annotated[str, typer.Option(help="The lake format: iceberg, paimon, delta, lance or hudi.")] = "iceberg",
    seeds: Annotated[int, typer.Option(help="How many seeds, one after the other.")] = 1,
    play: Annotated[
        int | None, typer.Option(help="Only this play of the seed, to its end: what a difference names.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where to work, and leave everything for a look; else a temporary folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Starts a server and two jobs, plays writers, other engines, kills and the documented ways out, and compares every
    reader's rows with a dict that shares no code with Lakeward. Exit code 1 when a row differs.

    Example: lakeward oracle --seed 7 --minutes 2 --format delta"""
    from lakeward_testing.oracle.run import OracleOptions, run_oracle

    if format not in FORMATS:
        raise InvalidRequest(what=f"--format {format}", reason=f"there are {', '.join(FORMATS)}")
    reports: list[OracleReport] = []
    with tempfile.TemporaryDirectory(prefix="lakeward-oracle-") as temporary:
        for number in range(seed, seed + seeds):
            options = OracleOptions(seed=number, seconds=60 * minutes, format=format, play=play)
            place = (folder or Path(temporary)) / f"{format}-{number}"
            report = run_oracle(place, options, say=(lambda _line: None) if as_json else print)
            reports.append(report)
            if not as_json:
                print_report(report)
    if as_json:
        print_json([dataclasses.asdict(report) | {"replay": report.replay} for report in reports])
    if any(report.difference for report in reports):
        raise typer.Exit(1)


def print_report(report: OracleReport) -> None:
    options = report.options
    deeds = ", ".join(f"{n} x {name}" for name, n in sorted(report.deeds.items()))
    faults = ", ".join(f"{n} x {name}" for name, n in sorted(report.faults.items()))
    print(f"  other engines: {deeds or 'none'}")
    print(f"  faults: {faults or 'none'}")
    print(f"  rows compared: {', '.join(f'{name} {n:,}' for name, n in sorted(report.readers.items()))}")
    ending = f"DIFFERENT; again: {report.replay}" if report.difference else "no difference"
    print(
        f"{options.format}, seed {options.seed}: {counted(report.plays, 'play')}, {report.rows:,} rows compared in "
        f"{report.comparisons:,} comparisons and {report.seconds:,.0f} s: {ending}"
    )
