# SPDX-License-Identifier: Apache-2.0
"""One job for everything: a table with long rounds before one that may not wait."""

from __future__ import annotations

from collections.abc import Iterator

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts
from lakeward.cli.output import duration


def check(facts: Facts) -> Iterator[Diagnosis]:
    for pool in sorted({t.pool for t in facts.tiered}):
        tables = [t for t in facts.tiered if t.pool == pool and t.last_duration_ms]
        slots = sum(j.slots for j in facts.status.jobs if j.live and j.pool == pool)
        if len(tables) < 2 or slots != 1:
            continue
        slow = max(tables, key=lambda t: t.last_duration_ms or 0)
        quick = min((t for t in tables if t is not slow), key=lambda t: t.freshness_ms)
        if (slow.last_duration_ms or 0) * 2 > quick.freshness_ms:
            yield Diagnosis(
                check="pools",
                level=Level.SOON,
                about=str(quick.path),
                figure=f"rounds of {slow.path} take {duration(slow.last_duration_ms)}; it may wait "
                f"{duration(quick.freshness_ms)}; one slot serves both",
                why="While the long round runs the other table waits, however quick its own rounds are.",
                mend=f"lakeward tier --slots 2, or a pool of its own: lakeward table alter {slow.path} --set "
                "table.datalake.pool=slow, and lakeward tier --pool slow",
            )
