# SPDX-License-Identifier: Apache-2.0
"""`run_oracle`: play after play of one seed until the time is over, and what was compared."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from lakeward_testing.oracle.engines.base import Engines
from lakeward_testing.oracle.lab import OracleLab
from lakeward_testing.oracle.play import Play
from lakeward_testing.oracle.stage import Different


@dataclass(frozen=True, kw_only=True)
class OracleOptions:
    seed: int = 1
    seconds: float = 60.0
    format: str = "iceberg"
    play: int | None = None
    """Only this one, from its beginning to its end."""


@dataclass(kw_only=True)
class OracleReport:
    """`readers`: rows compared by each. `difference`: empty when every comparison was equal."""

    options: OracleOptions
    plays: int = 0
    steps: int = 0
    comparisons: int = 0
    rows: int = 0
    seconds: float = 0.0
    readers: Counter[str] = field(default_factory=Counter)
    deeds: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    difference: str = ""
    play: int = 0

    @property
    def replay(self) -> str:
        return f"lakeward oracle --format {self.options.format} --seed {self.options.seed} --play {self.play}"


def open_engines(format: str, url: str, warehouse: Path) -> Engines:
    """Raises `ImportError` where a library of that format is not installed."""
    if format == "iceberg":
        from lakeward_testing.oracle.engines.iceberg import IcebergEngines

        return IcebergEngines(url, warehouse)
    if format == "paimon":
        from lakeward_testing.oracle.engines.paimon import PaimonEngines

        return PaimonEngines(url, warehouse)
    if format == "delta":
        from lakeward_testing.oracle.engines.delta import DeltaEngines

        return DeltaEngines(url, warehouse)
    if format == "lance":
        from lakeward_testing.oracle.engines.lance import LanceEngines

        return LanceEngines(url, warehouse)
    from lakeward_testing.oracle.engines.hudi import HudiEngines

    return HudiEngines(url, warehouse)


def run_oracle(
    folder: Path,
    options: OracleOptions,
    say: Callable[[str], None] = print,
    extend: Callable[[Engines], None] | None = None,
) -> OracleReport:
    """In a new folder. `say` gets a line for each play, and the last steps before a difference. `extend` adds readers
    and deeds, as tests do that have engines on a JVM."""
    report, began = OracleReport(options=options), time.monotonic()
    until = began + options.seconds
    lab = OracleLab(folder, options.format)
    engines = open_engines(options.format, lab.url, lab.warehouse)
    second = open_engines(lab.second_format, lab.url, lab.second_warehouse) if lab.second_format else None
    if extend is not None:
        extend(engines)
    try:
        for number in [options.play] if options.play is not None else count(1):
            assert number is not None
            report.play = number
            end = until if options.play is None else float("inf")
            if not _play_once(lab, engines, second, report, number, end, say):
                break
            if time.monotonic() >= until:
                break
    finally:
        report.faults, report.seconds = lab.faults, time.monotonic() - began
        engines.close()
        if second is not None:
            second.close()
        lab.close()
    return report


def _play_once(
    lab: OracleLab,
    engines: Engines,
    second: Engines | None,
    report: OracleReport,
    number: int,
    until: float,
    say: Callable[[str], None],
) -> bool:
    options, notes = report.options, (lab.folder / "steps.log").open("a")
    with lab.connect() as client, notes:
        play = Play(
            lab, client, engines, second, options.seed, number, lambda line: print(line, file=notes, flush=True)
        )
        say(f"play {number}: {play.tables.words()}")
        try:
            play.run(until)
        except Different as error:
            report.difference = str(error)
        finally:
            lab.heal()
    report.plays += 1
    report.steps += len(play.steps)
    report.comparisons += play.comparisons
    report.rows += play.rows_compared
    report.readers += play.readers
    report.deeds += play.deeds
    if report.difference:
        for line in play.notes:
            say(f"  {line}")
        say(f"  DIFFERENT: {report.difference}")
        return False
    say(f"play {number}: {play.rows_compared:,} rows compared in {play.comparisons} comparisons, no difference")
    return True
