# SPDX-License-Identifier: Apache-2.0
"""Clocks: lag, expiry and as-of reads depend on them."""

from __future__ import annotations

from collections.abc import Iterator

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts

MOST_MS = 2_000


def check(facts: Facts) -> Iterator[Diagnosis]:
    apart = abs(facts.server.now_ms - facts.here.now_ms) - facts.here.answer_ms
    if apart > MOST_MS:
        yield Diagnosis(
            check="clocks",
            level=Level.WRONG,
            about="server",
            figure=f"{apart / 1000:.1f} s between this machine's clock and the server's",
            why="Times in rows, snapshots and logs come from both; reads as of a time miss what they should see.",
            mend="NTP on both machines (timedatectl set-ntp true)",
        )
    for job in facts.status.jobs:
        if job.live and abs(job.clock_apart_ms or 0) > MOST_MS:
            yield Diagnosis(
                check="clocks",
                level=Level.WRONG,
                about=str(job.name),
                figure=f"{abs(job.clock_apart_ms or 0) / 1000:.1f} s between the job's clock and the server's",
                why="Snapshots get their times from jobs: reads as of a time, and expiry, go by them.",
                mend=f"NTP on {job.host or 'its machine'} (timedatectl set-ntp true)",
            )
