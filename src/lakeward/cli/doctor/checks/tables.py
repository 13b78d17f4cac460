# SPDX-License-Identifier: Apache-2.0
"""Tables: blocked ones, short retention, too many buckets, tables that cost more than they give, and unused ones.
Readers of other catalogs than the server's are not seen."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts
from lakeward.cli.output import counted, duration, moment, size
from lakeward.model import TableState
from lakeward.protocol.facts import HotFacts

MANY, SMALL_BYTES = 4, 1_000_000
"""From this many buckets on, files below this size come from the buckets, not from the rate."""

MANY_A_DAY = 1_000
"""Files a day of one table above which they are worth a word; compactions merge them."""

LARGE_ROWS = 5_000_000
"""Rows of one bucket in a round that a single task reads, about five seconds of it."""


def check_buckets(facts: Facts) -> Iterator[Diagnosis]:
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


_COMMAND = re.compile(r"`(lakeward [^`]+)`")


def check_blocked(facts: Facts) -> Iterator[Diagnosis]:
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


def check_retention(facts: Facts) -> Iterator[Diagnosis]:
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


FEW_ROWS, SHORT_MS, MANY_SNAPSHOTS = 1_000, 600_000, 20


def check_tiny(facts: Facts) -> Iterator[Diagnosis]:
    for table in facts.tiered:
        path, rounds = str(table.path), facts.done_rounds(str(table.path))
        small = table.lake_rows is not None and table.lake_rows < FEW_ROWS
        often = len(rounds) >= MANY_SNAPSHOTS and table.freshness_ms < SHORT_MS
        if small and often and sum(r.rows for r in rounds) < FEW_ROWS:
            yield Diagnosis(
                check="tiny",
                level=Level.SOON,
                about=path,
                figure=f"{counted(table.lake_rows or 0, 'row')}, {sum(r.rows for r in rounds):,} in the last "
                f"{len(rounds)} rounds",
                why="Every round makes a file and a snapshot for a handful of rows.",
                mend=f"lakeward table alter {path} --set 'table.datalake.freshness=1 h', or leave it out of the lake: "
                "union reads have its rows all the same",
            )


LONG_MS = 30 * 86_400_000


def check_unused(facts: Facts) -> Iterator[Diagnosis]:
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
