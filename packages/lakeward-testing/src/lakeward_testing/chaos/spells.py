# SPDX-License-Identifier: Apache-2.0
"""Quiet spells before anything is hurt: what one table's failure, and a lake that is away, change for the others.

Beside the many faults of a run nobody could tell whose fault a late table is; here there is only one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from lakeward.client import Client
from lakeward.protocol import routes
from lakeward_testing.chaos.record import Record
from lakeward_testing.chaos.tables import BROKEN, LOG, PK

EVERY_S = 0.1
SLOWER, LATER_MS = 2.0, 1_000.0
"""How much later a table may be beside a failing one: twice as late, or a second more. Machines that run this lab are
busy.
"""

FEWER = 0.5
"""What part of its writes a store must still take while the lake is away, for the same reason."""


@dataclass(frozen=True, kw_only=True)
class Spell:
    """From `began` to `ended`, in wall time. `lags`: samples per table, in ms. `failures`: rounds of the third table
    that failed in it.
    """

    began: float
    ended: float
    lags: Mapping[str, Sequence[float]]
    failures: int = 0

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def acks(self, records: Sequence[Record]) -> int:
        return sum(1 for r in records for at in r.acked.values() if self.began <= at <= self.ended)

    def doubts(self, records: Sequence[Record]) -> int:
        return sum(1 for r in records for at in r.doubted.values() if self.began <= at <= self.ended)


@dataclass(frozen=True, kw_only=True)
class Spells:
    """The third table paused, then failing; then the lake away."""

    calm: Spell
    failing: Spell
    no_lake: Spell

    def later(self) -> list[str]:
        """Tables that are later beside a failing one."""
        wrong = []
        for table in (LOG, PK):
            alone, beside = median(self.calm.lags[table]), median(self.failing.lags[table])
            if beside > max(SLOWER * alone, alone + LATER_MS):
                wrong.append(f"{table} is {beside:.0f} ms late beside a failing table, {alone:.0f} ms without")
        return wrong

    def stopped_writes(self, records: Sequence[Record]) -> list[str]:
        usual = self.calm.acks(records) / self.calm.seconds
        away = self.no_lake.acks(records) / self.no_lake.seconds
        wrong = [f"{away:.1f} writes a second with the lake away, {usual:.1f} before"] if away < FEWER * usual else []
        doubts = self.no_lake.doubts(records)
        return wrong + ([f"{doubts} writes were refused while the lake was away"] if doubts else [])

    def in_words(self) -> str:
        lags = [
            f"{table} {median(self.calm.lags[table]):.0f} -> {median(self.failing.lags[table]):.0f} ms"
            for table in (LOG, PK)
        ]
        return f"a third table failed {self.failing.failures} times beside them: lag {', '.join(lags)}"


def watch_spell(client: Client, seconds: float) -> Spell:
    lags: dict[str, list[float]] = {LOG: [], PK: []}
    failures, began = _status(client, BROKEN)["failures"], time.time()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for table, samples in lags.items():
            samples.append(float(_status(client, table)["lag_ms"]))
        time.sleep(EVERY_S)
    return Spell(began=began, ended=time.time(), lags=lags, failures=_status(client, BROKEN)["failures"] - failures)


def _status(client: Client, table: str) -> dict[str, int]:
    status: dict[str, int] = client.server.ask("GET", routes.TABLE_STATUS.format(table=table))
    return status
