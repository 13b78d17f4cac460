# SPDX-License-Identifier: Apache-2.0
"""Jobs: missing, silent, unwatched, of several versions; tables that none serves; pools whose rounds delay others."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts
from lakeward.cli.output import counted, duration
from lakeward.lake.hudi.sparkbundle import POOL, SPARK
from lakeward.protocol.views import JobStatus

SILENT_BEATS = 10
_NEEDS = {
    POOL: f" A job of that pool runs on PySpark {SPARK}, in an environment of its own: docs/install.md says "
    "how to make it."
}
"""Options that a job of a named pool needs in addition."""


def check_jobs(facts: Facts) -> Iterator[Diagnosis]:
    live = [j for j in facts.status.jobs if j.live and j.beats_missed < SILENT_BEATS]
    yield from _missing(facts)
    unserved = sorted({t.pool for t in facts.tiered if not t.served})
    for pool in unserved:
        tables = [t for t in facts.tiered if not t.served and t.pool == pool]
        named = "" if pool == "default" else f" --pool {shlex.quote(pool)}"
        is_plugin = any(j.pool == pool and j.slots for j in live)
        yield Diagnosis(
            check="jobs",
            level=Level.WRONG,
            about=str(tables[0].path),
            figure=f"no live job of pool {pool} has the plugin for the lake of {counted(len(tables), 'table')}"
            if is_plugin
            else f"no live job serves pool {pool}, which has {counted(len(tables), 'table')}",
            why=f"Their rows stay in the hot store.{_NEEDS.get(pool, '')}",
            mend=f"lakeward tier{named} --server {facts.here.server_url}",
        )
    yield from _versions(facts, live)
    if len(live) > 1 and not facts.server.jobs_expected:
        yield Diagnosis(
            check="jobs",
            level=Level.SOON,
            about="server",
            figure=f"{len(live)} jobs, none of them expected by name",
            why="When one of them dies, the others do its work more slowly and nobody is told.",
            mend=f"jobs.expected = {[str(j.name) for j in live]} in lakeward.toml, and jobs that keep their names",
        )


def _missing(facts: Facts) -> Iterator[Diagnosis]:
    late = [j.name for j in facts.status.jobs if j.live and j.beats_missed >= SILENT_BEATS]
    silent = [j.name for j in facts.status.jobs if j.expected and not j.live]
    for name in sorted({*facts.status.jobs_missing, *late, *silent}):
        yield Diagnosis(
            check="jobs",
            level=Level.WRONG,
            about=str(name),
            figure="expected, and not heard of" if name not in late else "silent for ten heartbeats or more",
            why="Its slots are missing, and its tables wait until its lease ends.",
            mend=f"lakeward tier --name {name} --server {facts.here.server_url}",
        )


def _versions(facts: Facts, live: list[JobStatus]) -> Iterator[Diagnosis]:
    versions = sorted({j.version for j in live if j.version})
    if versions and versions != [facts.server.version]:
        yield Diagnosis(
            check="jobs",
            level=Level.SOON,
            about=", ".join(str(j.name) for j in live if j.version != facts.server.version),
            figure=f"jobs of {', '.join(versions)}, a server of {facts.server.version}",
            why="Versions beside each other are for the time of an upgrade: the older one sets what all may do.",
            mend="start the older ones again from the newer package",
        )


def check_pools(facts: Facts) -> Iterator[Diagnosis]:
    for pool in sorted({t.pool for t in facts.tiered}):
        tables = [t for t in facts.tiered if t.pool == pool and t.last_duration_ms]
        slots = sum(j.slots or 0 for j in facts.status.jobs if j.live and j.pool == pool)
        if len(tables) < 2 or slots != 1:
            continue
        slow = max(tables, key=lambda t: t.last_duration_ms or 0)
        quick = min((t for t in tables if t is not slow), key=lambda t: t.freshness_ms)
        if (slow.last_duration_ms or 0) * 2 > quick.freshness_ms:
            more = "lakeward tier --slots 2" + ("" if pool == "default" else f" --pool {shlex.quote(pool)}")
            other = "slow" if pool != "slow" else "slower"
            yield Diagnosis(
                check="pools",
                level=Level.SOON,
                about=str(quick.path),
                figure=f"rounds of {slow.path} take {duration(slow.last_duration_ms)}; it may wait "
                f"{duration(quick.freshness_ms)}; one slot serves both",
                why="While the long round runs the other table waits, however quick its own rounds are.",
                mend=f"{more}, or a pool of its own: lakeward table alter {slow.path} --set "
                f"table.datalake.pool={other}, and lakeward tier --pool {other}",
            )
