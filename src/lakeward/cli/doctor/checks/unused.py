# SPDX-License-Identifier: Apache-2.0
"""Tables that nobody writes to."""

from __future__ import annotations

from collections.abc import Iterator

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts
from lakeward.cli.output import moment

LONG_MS = 30 * 86_400_000


def check(facts: Facts) -> Iterator[Diagnosis]:
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
