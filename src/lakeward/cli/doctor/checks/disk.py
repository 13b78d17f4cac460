# SPDX-License-Identifier: Apache-2.0
"""Disk: days until the logs fill it."""

from __future__ import annotations

from collections.abc import Iterator

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts
from lakeward.cli.output import size

LEAST_SHARE, LEAST_UP_MS, DAYS = 0.05, 600_000, 7
"""A rate is known after ten minutes."""


def check(facts: Facts) -> Iterator[Diagnosis]:
    server = facts.server
    free, total = server.disk_free_bytes, max(1, server.disk_total_bytes)
    if free < server.disk_reserve_bytes:
        kept = f"{size(server.disk_reserve_bytes)} are kept in reserve (server.disk.reserve)"
        yield _finding(Level.WRONG, f"writes are refused: {size(free)} free, {kept}")
        return
    if free / total < LEAST_SHARE:
        yield _finding(Level.WRONG, f"{size(free)} free of {size(total)}")
        return
    if server.up_ms < LEAST_UP_MS:
        return
    per_day = sum(h.appended_bytes for h in server.hot) / server.up_ms * 86_400_000
    to_come = 0.0
    for hot in server.hot:
        rate = hot.appended_bytes / server.up_ms
        kept_ms = hot.ttl_ms or 365 * 86_400_000
        to_come += max(0.0, rate * kept_ms - hot.local_bytes - hot.remote_bytes)
    if per_day and to_come > free and free / per_day < DAYS:
        yield _finding(
            Level.SOON, f"{free / per_day:.1f} days left: {size(free)} free, logs grow by {size(int(per_day))} a day"
        )


def _finding(level: Level, figure: str) -> Diagnosis:
    return Diagnosis(
        check="disk",
        level=level,
        about="server",
        figure=figure,
        why="A full disk stops writes; nothing that was acknowledged is lost.",
        mend="a larger disk, remote.data.dir on another one or in S3, or a shorter table.log.ttl",
    )
