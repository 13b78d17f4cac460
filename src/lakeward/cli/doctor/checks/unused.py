# SPDX-License-Identifier: Apache-2.0
"""Tables without writers, and tables without readers. Readers of other catalogs than the server's are not seen."""

from __future__ import annotations

from collections.abc import Iterator

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts
from lakeward.cli.output import moment
from lakeward.model import TableState
from lakeward.protocol.facts import HotFacts

LONG_MS = 30 * 86_400_000


def check(facts: Facts) -> Iterator[Diagnosis]:
    hot_alone = {str(t.path) for t in facts.status.tables if t.state is TableState.DISABLED}
    for hot in facts.server.hot:
        path = str(hot.path)
        if hot.written_at_ms is not None and facts.server.now_ms - hot.written_at_ms > LONG_MS:
            yield Diagnosis(
                check="unused",
                level=Level.SOON,
                about=path,
                figure=f"no row since {moment(hot.written_at_ms)} UTC",
                why="It is looked at in every round of upkeep, and its buckets hold files open.",
                mend=f"lakeward table drop {path}: the lake table stays and can be read as before",
            )
            continue
        if not hot.written_at_ms or facts.server.up_ms <= LONG_MS or _is_read(facts, hot):
            continue
        if path in hot_alone:
            yield Diagnosis(
                check="unused",
                level=Level.SOON,
                about=path,
                figure=f"rows come, and nobody has read one for {LONG_MS // 86_400_000} days",
                why="It is not in the lake either: its rows go when their time is over, and nobody has seen them.",
                mend=f"lakeward table alter {path} --set table.datalake.enabled=true, or lakeward table drop {path}",
            )
        elif facts.server.sees_lake_reads:
            yield Diagnosis(
                check="unused",
                level=Level.SOON,
                about=path,
                figure=f"rounds run, and nobody has read it through this server for {LONG_MS // 86_400_000} days",
                why="Its rounds take slots and storage. Who opens its files without the catalog is not seen.",
                mend=f"lakeward table alter {path} --set 'table.datalake.freshness=1 h', or lakeward table drop {path}",
            )


def _is_read(facts: Facts, hot: HotFacts) -> bool:
    return hot.read_at_ms is not None and facts.server.now_ms - hot.read_at_ms <= LONG_MS
