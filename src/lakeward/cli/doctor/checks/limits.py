# SPDX-License-Identifier: Apache-2.0
"""Descriptors and memory of the server's process."""

from __future__ import annotations

from collections.abc import Iterator

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts
from lakeward.cli.output import size

FULL = 0.8


def check(facts: Facts) -> Iterator[Diagnosis]:
    server = facts.server
    if server.open_files and server.max_files and server.open_files > FULL * server.max_files:
        yield Diagnosis(
            check="limits",
            level=Level.SOON,
            about="server",
            figure=f"{server.open_files:,} of {server.max_files:,} files are open",
            why="Without descriptors no bucket opens and no connection is taken.",
            mend="ulimit -n (LimitNOFILE of the unit) higher, or fewer buckets",
        )
    if server.memory_bytes and server.memory_limit_bytes and server.memory_bytes > FULL * server.memory_limit_bytes:
        yield Diagnosis(
            check="limits",
            level=Level.SOON,
            about="server",
            figure=f"{size(server.memory_bytes)} of {size(server.memory_limit_bytes)} memory",
            why="The system ends the process at its limit.",
            mend="a higher limit, or a lower server.memory.max-in-flight",
        )
    for name in server.still:
        yield Diagnosis(
            check="limits",
            level=Level.WRONG,
            about="server",
            figure=f"thread {name} stands still",
            why="What it does in the background is not done.",
            mend="start the server again; its log says why",
        )
