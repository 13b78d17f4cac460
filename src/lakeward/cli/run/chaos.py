# SPDX-License-Identifier: Apache-2.0
"""`lakeward chaos`: hurts a real Lakeward at every step of its protocol, and prints which invariants held."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakeward.cli.output import Json, print_json, print_rows
from lakeward.errors import InvalidRequest

if TYPE_CHECKING:
    from lakeward_testing.chaos.lab import LabReport
    from lakeward_testing.chaos.plan import FaultKind

FORMATS = ("iceberg", "paimon", "delta", "lance", "hudi")


def register(app: typer.Typer) -> None:
    app.command("chaos")(chaos)


def chaos(
    seed: Annotated[int, typer.Option(help="Same seed, same faults.")] = 1,
    minutes: Annotated[float, typer.Option(help="How long to hurt it, for each seed.")] = 1.0,
    faults: Annotated[
        str | None, typer.Option(help="Only these kinds, with commas between; `list` shows them.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, one after the other.")] = 1,
    every: Annotated[float, typer.Option(help="Seconds from one fault to the next, on average.")] = 2.0,
    spark: Annotated[
        bool, typer.Option("--spark", help="Jobs on Spark, whose executors and Python workers are hurt too.")
    ] = False,
    format: Annotated[str, typer.Option(help="The lake format: iceberg, paimon, delta, lance or hudi.")] = "iceberg",
    folder: Annotated[
        Path | None, typer.Option(help="Where to work, and leave everything for a look; else a temporary folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Starts a server, two jobs, producers and readers, and kills, pauses, cuts off and lies to them. Exit code 1 when
    an invariant broke.

    Example: lakeward chaos --seed 7 --minutes 2"""
    from lakeward_testing.chaos.lab import ChaosLab, LabOptions
    from lakeward_testing.chaos.plan import FaultKind

    if faults == "list":
        print_rows(("kind",), [(str(k),) for k in FaultKind], empty="")
        return
    if format not in FORMATS:
        raise InvalidRequest(what=f"--format {format}", reason=f"there are {', '.join(FORMATS)}")
    kinds = _kinds(faults)
    reports = []
    with tempfile.TemporaryDirectory(prefix="lakeward-chaos-") as temporary:
        for number in range(seed, seed + seeds):
            options = LabOptions(
                seed=number, seconds=60 * minutes, kinds=kinds, every_s=every, spark=spark, format=format
            )
            lab = ChaosLab(
                (folder or Path(temporary)) / f"seed-{number}", options, say=(lambda _line: None) if as_json else print
            )
            report = lab.run()
            reports.append(report)
            if not as_json:
                print_report(report)
    if as_json:
        print_json([_plain(r) for r in reports])
    if not all(r.holds for r in reports):
        raise typer.Exit(1)


def _kinds(text: str | None) -> tuple[FaultKind, ...]:
    from lakeward_testing.chaos.plan import FaultKind

    if text is None:
        return tuple(FaultKind)
    wanted = [part.strip() for part in text.split(",")]
    unknown = [part for part in wanted if part not in set(FaultKind)]
    if unknown:
        raise InvalidRequest(what=f"--faults {', '.join(unknown)}", reason=f"there are {', '.join(FaultKind)}")
    return tuple(FaultKind(part) for part in wanted)


def print_report(report: LabReport) -> None:
    print(f"\nseed {report.seed}: {'every invariant held' if report.holds else 'AN INVARIANT BROKE'}")
    verdicts = {True: "held", False: "BROKE", None: "-"}
    print_rows(
        ("", "invariant", "", "checked by"),
        [(v.number, v.words, verdicts[v.held], v.how) for v in report.verdicts],
        empty="no invariants",
    )
    for verdict in report.verdicts:
        for wrong in verdict.wrong:
            print(f"  {verdict.number}: {wrong}")
    print(f"  faults: {', '.join(f'{n} x {kind}' for kind, n in sorted(report.faults.items())) or 'none'}")
    print(f"  steps hit: {len(report.steps)} of the round's and the server's, {sum(report.steps.values())} times")
    print(
        "  "
        + ", ".join(
            f"{name.replace('-', ' ')} {value:,.1f}".replace(".0", "") for name, value in report.figures.items()
        )
    )


def _plain(report: LabReport) -> dict[str, Any]:
    return {
        "seed": report.seed,
        "holds": report.holds,
        "invariants": [dataclasses.asdict(v) for v in report.verdicts],
        "faults": dict(report.faults),
        "steps": dict(report.steps),
        "figures": report.figures,
    }
