# SPDX-License-Identifier: Apache-2.0
"""Log that is kept too short, or only because the lake is behind."""

from __future__ import annotations

from collections.abc import Iterator

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts
from lakeward.cli.output import duration, size


def check(facts: Facts) -> Iterator[Diagnosis]:
    for table in facts.tiered:
        path, hot = str(table.path), facts.hot(str(table.path))
        if hot is None or not hot.ttl_ms:
            continue
        if table.lag_ms > hot.ttl_ms:
            yield Diagnosis(
                check="retention",
                level=Level.WRONG,
                about=path,
                figure=f"the lake is {duration(table.lag_ms)} behind, its log lives {duration(hot.ttl_ms)}; "
                f"{size(hot.local_bytes + hot.remote_bytes)} wait",
                why="Log past its time is kept only until the lake has it: it grows as long as rounds do not come.",
                mend=f"lakeward explain {path}",
            )
        elif hot.ttl_ms < 3 * table.freshness_ms:
            yield Diagnosis(
                check="retention",
                level=Level.SOON,
                about=path,
                figure=f"table.log.ttl {duration(hot.ttl_ms)}, freshness {duration(table.freshness_ms)}",
                why="Consumers of the log that stop for a moment find it gone: it goes as soon as the lake has it.",
                mend=f"lakeward table alter {path} --set 'table.log.ttl=7 d'",
            )
