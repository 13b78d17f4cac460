# SPDX-License-Identifier: Apache-2.0
"""The `live` warehouse: tails that are too long to be shown, and files that its answers leave in the lakes."""

from __future__ import annotations

from collections.abc import Iterator

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts
from lakeward.cli.output import counted, size

FULL, ALMOST = 0.98, 0.8


def check(facts: Facts) -> Iterator[Diagnosis]:
    live = facts.server.live
    if live is None:
        return
    waiting = {str(t.path): t.waiting_rows for t in facts.status.tables}
    for path in (p for p in map(str, live.cut_short) if waiting.get(p)):
        yield Diagnosis(
            check="live",
            level=Level.WRONG,
            about=path,
            figure=f"{counted(waiting[path], 'row')} wait for the lake, more than warehouse live shows",
            why="Engines that read it there see an earlier moment.",
            mend=f"lakeward tier-now {path}, or more live.max-tail-rows and live.max-tail-bytes",
        )
    if live.bytes > ALMOST * live.max_bytes:
        yield Diagnosis(
            check="live",
            level=Level.WRONG if live.bytes > FULL * live.max_bytes else Level.SOON,
            about="server",
            figure=f"files of live answers take {size(live.bytes)} of {size(live.max_bytes)} (live.max-bytes)",
            why="At the limit loads of tables with new rows are refused.",
            mend="a higher live.max-bytes, or a shorter live.keep",
        )
    if live.overdue:
        yield Diagnosis(
            check="live",
            level=Level.SOON,
            about="server",
            figure=f"files of {counted(live.overdue, 'live answer')} are past live.keep and still in the lake",
            why="They take space, and count for live.max-bytes.",
            mend="the server's log says which lake does not answer",
        )
