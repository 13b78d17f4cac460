# SPDX-License-Identifier: Apache-2.0
"""Freshness that rounds cannot keep: a goal is no guarantee where the time is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts
from lakeward.cli.output import counted, duration
from lakeward.model import TableState
from lakeward.protocol.operate import AdmissionAnswer


def check_freshness(facts: Facts) -> Iterator[Diagnosis]:
    for table in facts.tiered:
        path, round_ms = str(table.path), table.last_duration_ms or 0
        if table.state is TableState.QUARANTINED or table.failures_in_a_row:
            yield Diagnosis(
                check="freshness",
                level=Level.WRONG,
                about=path,
                figure=f"{counted(table.failures_in_a_row, 'round')} failed in a row, state {table.state}",
                why=f"Nothing new reaches the lake: {table.reason or 'its rounds say why'}.",
                mend=_advised(table.reason)
                or f"lakeward rounds {path}; when the cause is gone: lakeward resume {path}",
            )
        elif table.served and table.lag_ms > table.freshness_ms:
            yield Diagnosis(
                check="freshness",
                level=Level.WRONG,
                about=path,
                figure=f"{duration(table.lag_ms)} late at a freshness of {duration(table.freshness_ms)}",
                why="The oldest row that waits has waited longer than was asked for.",
                mend=f"lakeward explain {path}",
            )
        elif 2 * round_ms > table.freshness_ms:
            yield Diagnosis(
                check="freshness",
                level=Level.WRONG,
                about=path,
                figure=f"freshness {duration(table.freshness_ms)}, rounds take {duration(round_ms)}",
                why="A row that just misses a round waits for the next one: two rounds must fit into the freshness.",
                mend=f"lakeward table alter {path} --set 'table.datalake.freshness={_seconds(3 * round_ms)} s'",
            )
    yield from _forecast(facts.admission)


def _forecast(admission: AdmissionAnswer | None) -> Iterator[Diagnosis]:
    if admission is not None and not admission.complete:
        yield Diagnosis(
            check="freshness",
            level=Level.SOON,
            about="server",
            figure=f"the forecast of {counted(len(admission.rows), 'table')} covers "
            f"{duration(admission.simulated_ms)} only",
            why="The time for it was over: what it says to be late is late, and it says nothing of later rounds.",
            mend="look at the tables that are late now first: the other findings name them",
        )
    if admission is not None and not admission.feasible:
        late = [r for r in admission.rows if r.feasible and r.misses]
        if late:
            worst = max(late, key=lambda r: r.worst_lag_ms / max(1, r.freshness_ms))
            more = "" if admission.slots_needed is None else f" --slots {admission.slots_needed}"
            yield Diagnosis(
                check="freshness",
                level=Level.WRONG,
                about=worst.table,
                figure=(
                    f"{counted(admission.slots, 'slot')} {'is' if admission.slots == 1 else 'are'} "
                    f"{admission.utilisation:.0%} busy; its lag reaches "
                    f"{duration(worst.worst_lag_ms)} at a freshness of {duration(worst.freshness_ms)}"
                ),
                why="Each table's rounds fit its freshness, and together they need more slots than there are.",
                mend=f"lakeward tier{more}, or a longer freshness of the tables that can wait",
            )


def _advised(reason: str | None) -> str | None:
    """The command that the error itself names."""
    named = re.search(r"`(lakeward [^`]+)`", reason or "")
    return None if named is None else named[1]


def _seconds(ms: int) -> int:
    return max(1, -(-ms // 1000))
