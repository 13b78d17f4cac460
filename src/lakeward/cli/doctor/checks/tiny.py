# SPDX-License-Identifier: Apache-2.0
"""Tables that the lake costs more than it gives: few rows, seldom changed, often looked at by rounds."""

from __future__ import annotations

from collections.abc import Iterator

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts
from lakeward.cli.output import counted

FEW_ROWS, SHORT_MS, MANY_SNAPSHOTS = 1_000, 600_000, 20


def check(facts: Facts) -> Iterator[Diagnosis]:
    for table in facts.tiered:
        path, rounds = str(table.path), facts.done_rounds(str(table.path))
        small = table.lake_rows is not None and table.lake_rows < FEW_ROWS
        often = len(rounds) >= MANY_SNAPSHOTS and table.freshness_ms < SHORT_MS
        if small and often and sum(r.rows for r in rounds) < FEW_ROWS:
            yield Diagnosis(
                check="tiny",
                level=Level.SOON,
                about=path,
                figure=f"{counted(table.lake_rows or 0, 'row')}, {sum(r.rows for r in rounds):,} in the last "
                f"{len(rounds)} rounds",
                why="Every round makes a file and a snapshot for a handful of rows.",
                mend=f"lakeward table alter {path} --set 'table.datalake.freshness=1 h', or leave it out of the lake: "
                "union reads have its rows all the same",
            )
