# SPDX-License-Identifier: Apache-2.0
"""Tables whose rows do not reach their lake until somebody does something: paused for a choice, gone from the lake's
catalog, changed by others, or cut off by the server's configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts
from lakeward.model import TableState

_COMMAND = re.compile(r"`(lakeward [^`]+)`")


def check(facts: Facts) -> Iterator[Diagnosis]:
    for table in facts.status.tables:
        if table.blocked:
            command = _COMMAND.search(table.blocked)
            yield Diagnosis(
                check="blocked",
                level=Level.WRONG,
                about=str(table.path),
                figure=f"{table.state}, {table.waiting_rows:,} rows wait",
                why=f"{table.blocked}.",
                mend=command[1] if command else "what the reason says; then start the server again",
            )
        elif table.state is TableState.PAUSED:
            yield Diagnosis(
                check="blocked",
                level=Level.SOON,
                about=str(table.path),
                figure=f"paused, {table.waiting_rows:,} rows wait",
                why=f"{table.reason or 'Somebody paused it'}: nothing new reaches the lake until it is resumed.",
                mend=f"lakeward resume {table.path}",
            )
