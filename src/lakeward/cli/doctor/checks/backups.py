# SPDX-License-Identifier: Apache-2.0
"""How old the last backup is, where one was ever made."""

from __future__ import annotations

from collections.abc import Iterator

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts

MOST_MS = 2 * 86_400_000


def check(facts: Facts) -> Iterator[Diagnosis]:
    made = facts.server.backed_up_at_ms
    if made is not None and facts.server.now_ms - made > MOST_MS:
        yield Diagnosis(
            check="backups",
            level=Level.SOON,
            about="server",
            figure=f"the last backup is {(facts.server.now_ms - made) / 86_400_000:.1f} days old",
            why="Rows that are not in the lake yet are in the server's folder alone.",
            mend="lakeward backup create TARGET, by a timer",
        )
