# SPDX-License-Identifier: Apache-2.0
"""The server's machine: disk, descriptors and memory, clocks, versions, tokens and TLS, backups."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts
from lakeward.cli.output import size

LEAST_SHARE, LEAST_UP_MS, DAYS = 0.05, 600_000, 7
"""A rate is known after ten minutes."""


def check_disk(facts: Facts) -> Iterator[Diagnosis]:
    server = facts.server
    free, total = server.disk_free_bytes, max(1, server.disk_total_bytes)
    if free < server.disk_reserve_bytes:
        reserve_text = f"{size(server.disk_reserve_bytes)} are kept in reserve (server.disk.reserve)"
        yield _disk_finding(Level.WRONG, f"writes are refused: {size(free)} free, {reserve_text}")
        return
    if free / total < LEAST_SHARE:
        yield _disk_finding(Level.WRONG, f"{size(free)} free of {size(total)}")
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
        yield _disk_finding(
            Level.SOON, f"{free / per_day:.1f} days left: {size(free)} free, logs grow by {size(int(per_day))} a day"
        )


def _disk_finding(level: Level, figure: str) -> Diagnosis:
    return Diagnosis(
        check="disk",
        level=level,
        about="server",
        figure=figure,
        why="A full disk stops writes; nothing that was acknowledged is lost.",
        mend="a larger disk, remote.data.dir on another one or in S3, or a shorter table.log.ttl",
    )


FULL = 0.8


def check_limits(facts: Facts) -> Iterator[Diagnosis]:
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


LARGEST_CLOCK_SKEW_MS = 2_000


def check_clocks(facts: Facts) -> Iterator[Diagnosis]:
    apart = abs(facts.server.now_ms - facts.here.now_ms) - facts.here.answer_ms
    if apart > LARGEST_CLOCK_SKEW_MS:
        yield Diagnosis(
            check="clocks",
            level=Level.WRONG,
            about="server",
            figure=f"{apart / 1000:.1f} s between this machine's clock and the server's",
            why="Times in rows, snapshots and logs come from both; reads as of a time miss what they should see.",
            mend="NTP on both machines (timedatectl set-ntp true)",
        )
    for job in facts.status.jobs:
        if job.live and abs(job.clock_apart_ms or 0) > LARGEST_CLOCK_SKEW_MS:
            yield Diagnosis(
                check="clocks",
                level=Level.WRONG,
                about=str(job.name),
                figure=f"{abs(job.clock_apart_ms or 0) / 1000:.1f} s between the job's clock and the server's",
                why="Snapshots get their times from jobs: reads as of a time, and expiry, go by them.",
                mend=f"NTP on {job.host or 'its machine'} (timedatectl set-ntp true)",
            )


def check_versions(facts: Facts) -> Iterator[Diagnosis]:
    here, server = facts.here, facts.server
    if here.protocol != server.protocol:
        yield _versions_finding(Level.WRONG, f"protocol {here.protocol} here, {server.protocol} there", server.version)
    elif here.version != server.version:
        yield _versions_finding(Level.SOON, f"lakeward {here.version} here, {server.version} there", server.version)


def _versions_finding(level: Level, figure: str, version: str) -> Diagnosis:
    return Diagnosis(
        check="versions",
        level=level,
        about="server",
        figure=figure,
        why="What one of them has learnt the other does not know.",
        mend=f"pip install 'lakeward[all]=={version}'",
    )


_LOCAL = ("127.0.0.1", "localhost", "::1")


def check_security(facts: Facts) -> Iterator[Diagnosis]:
    server, address = facts.server, urlsplit(facts.here.server_url)
    if not server.is_loopback and not server.has_tls and address.scheme != "https":
        yield _security_finding(
            "no TLS on an open address",
            "Tokens and rows can be read on the way.",
            "server.tls.cert and server.tls.key in lakeward.toml, or TLS in front of it",
        )
    if not server.is_loopback and not server.has_tokens:
        yield _security_finding(
            "no tokens on an open address",
            "Whoever reaches it may drop tables.",
            "server.tokens, or server.token-file, in lakeward.toml",
        )
    if facts.here.has_token and address.scheme == "http" and address.hostname not in _LOCAL:
        yield _security_finding(
            f"a token goes to {facts.here.server_url}", "It can be read on the way.", "an https:// address"
        )


def _security_finding(figure: str, why: str, mend: str) -> Diagnosis:
    return Diagnosis(check="security", level=Level.WRONG, about="server", figure=figure, why=why, mend=mend)


OLDEST_BACKUP_MS = 2 * 86_400_000


def check_backups(facts: Facts) -> Iterator[Diagnosis]:
    made = facts.server.backed_up_at_ms
    if made is not None and facts.server.now_ms - made > OLDEST_BACKUP_MS:
        yield Diagnosis(
            check="backups",
            level=Level.SOON,
            about="server",
            figure=f"the last backup is {(facts.server.now_ms - made) / 86_400_000:.1f} days old",
            why="Rows that are not in the lake yet are in the server's folder alone.",
            mend="lakeward backup create TARGET, by a timer",
        )
