# SPDX-License-Identifier: Apache-2.0
"""Buckets are for the round too: each writes a file of its own, and none is split among tasks."""

from __future__ import annotations

from collections.abc import Iterator

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts
from lakeward.cli.output import counted

MANY, SMALL_BYTES = 4, 1_000_000
"""From this many buckets on, files below this size come from the buckets, not from the rate."""

MANY_A_DAY = 1_000
"""Files a day of one table above which they are worth a word; compactions merge them."""

LARGE_ROWS = 5_000_000
"""Rows of one bucket in a round that a single task reads, about five seconds of it."""


def check(facts: Facts) -> Iterator[Diagnosis]:
    for table in facts.tiered:
        path = str(table.path)
        info, rounds = facts.tables.get(path), facts.done_rounds(path)[:20]
        if info is None or len(rounds) < 3:
            continue
        buckets = info.descriptor.bucket_count
        written, files = sum(r.bytes_written for r in rounds), max(1, sum(r.files for r in rounds))
        rows = max(r.rows for r in rounds)
        day = round(86_400_000 / max(1, table.freshness_ms) * files / len(rounds))
        if buckets >= MANY and written / files < SMALL_BYTES and day > MANY_A_DAY:
            freshness_s = -(-86_400 * files // (len(rounds) * MANY_A_DAY))
            yield Diagnosis(
                check="buckets",
                level=Level.SOON,
                about=path,
                figure=f"{buckets} buckets, {written / files / 1000:,.0f} kB a file, about {day:,} files a day",
                why="Each round writes a file for each bucket; more buckets than the rate needs make small files, and "
                "every one of them is read, rewritten and paid for.",
                mend=f"lakeward table alter {path} --set 'table.datalake.freshness={freshness_s} s'; the number of "
                "buckets is fixed, so a new table with fewer and a copy is the other way",
            )
        elif rows / buckets > LARGE_ROWS:
            yield Diagnosis(
                check="buckets",
                level=Level.SOON,
                about=path,
                figure=f"{rows / buckets:,.0f} rows a bucket in one round, {counted(buckets, 'bucket')}",
                why="A bucket is one task's work: rounds of this table do not get shorter with more cores.",
                mend="a table with more buckets, and a copy of the rows; the number is fixed once a table is made",
            )
