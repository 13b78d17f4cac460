# SPDX-License-Identifier: Apache-2.0
"""Each check finds its condition, and none says anything of a healthy server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakeward.cli.doctor.diagnosis import Level
from lakeward.cli.doctor.facts import Facts, HereFacts
from lakeward.cli.doctor.registry import CHECKS, examine
from lakeward.client.columns import parse_columns
from lakeward.model import (
    TIER,
    Epoch,
    InstanceId,
    JobName,
    RoundId,
    RoundPhases,
    Schema,
    TableDescriptor,
    TableId,
    TableInfo,
    TablePath,
    TableState,
    WorkKind,
)
from lakeward.protocol.facts import HotFacts, LakeProbe, LiveFacts, ProbeAnswer, ServerFacts
from lakeward.protocol.operate import AdmissionAnswer, AdmissionRow, CoordinatorStatus
from lakeward.protocol.views import JobStatus, RoundStatus, TableStatus, WorkStatus

PATH, DAY = TablePath.parse("shop.orders"), 86_400_000
TABLE = TableStatus(
    path=PATH,
    table_id=TableId("t"),
    state=TableState.SCHEDULED,
    epoch=Epoch(1),
    freshness_ms=60_000,
    last_duration_ms=5_000,
    lake_rows=1_000_000,
    lake_files=40,
)
JOB = JobStatus(
    name=JobName("a"),
    instance=InstanceId("i"),
    pool="default",
    slots=1,
    live=True,
    last_beat_at_ms=1,
    version="1",
    kinds=(TIER, WorkKind("compact")),
)
ROUND = RoundStatus(
    round_id=RoundId("r"),
    path=PATH,
    epoch=Epoch(1),
    job=JobName("a"),
    outcome="done",
    started_at_ms=0,
    ended_at_ms=5_000,
    phases=RoundPhases(),
    rows=100_000,
    bytes_written=8_000_000,
    files=4,
)
HOT = HotFacts(path=PATH, local_bytes=1_000_000, ttl_ms=7 * DAY, written_at_ms=90 * DAY, appended_bytes=1_000_000)
SERVER = ServerFacts(
    version="1",
    protocol="1",
    now_ms=90 * DAY,
    up_ms=DAY,
    disk_free_bytes=10**11,
    disk_total_bytes=10**12,
    memory_bytes=10**8,
    memory_limit_bytes=10**9,
    open_files=100,
    max_files=20_000,
    backed_up_at_ms=89 * DAY,
    hot=(HOT,),
)


def info(buckets: int = 4, properties: dict[str, str] | None = None) -> TableInfo:
    descriptor = TableDescriptor(
        schema=Schema(columns=parse_columns("id bigint")),
        bucket_count=buckets,
        properties=properties or {},
    )
    return TableInfo(path=PATH, table_id=TableId("t"), descriptor=descriptor)


HEALTHY = Facts(
    here=HereFacts(version="1", protocol="1", now_ms=90 * DAY),
    server=SERVER,
    status=CoordinatorStatus(coordinator_epoch=1, now_ms=90 * DAY, tables=(TABLE,), jobs=(JOB,)),
    tables={"shop.orders": info()},
    rounds=(ROUND,) * 30,
)


def server(**changes: Any) -> Facts:
    return replace(HEALTHY, server=replace(SERVER, **changes))


def table(**changes: Any) -> Facts:
    return status(tables=(replace(TABLE, **changes),))


def status(**changes: Any) -> Facts:
    return replace(HEALTHY, status=replace(HEALTHY.status, **changes))


def here(**changes: Any) -> Facts:
    return replace(HEALTHY, here=replace(HEALTHY.here, **changes))


def hot(**changes: Any) -> Facts:
    return server(hot=(replace(HOT, **changes),))


def rounds(**changes: Any) -> Facts:
    return replace(HEALTHY, rounds=(replace(ROUND, **changes),) * 30)


def test_a_healthy_server_is_told_nothing() -> None:
    assert examine(HEALTHY) == []
    assert examine(server(live=LiveFacts(bytes=1, max_bytes=10**9, cut_short=(PATH,)))) == [], "a round landed since"
    assert examine(server(up_ms=31 * DAY)) == [], "who reads a lake by another catalog is not seen"
    assert examine(replace(HEALTHY, probe=ProbeAnswer(catalogs={"iceberg": ""}, tables=(LakeProbe(path=PATH),)))) == []
    empty = replace(HEALTHY, status=replace(HEALTHY.status, tables=(), jobs=()), tables={}, rounds=())
    assert examine(replace(empty, server=replace(SERVER, hot=(), up_ms=1, backed_up_at_ms=None))) == []


PATH_STYLE = "spark.hadoop.fs.s3a.path.style.access"
SLOW = replace(TABLE, path=TablePath.parse("shop.slow"), table_id=TableId("s"), freshness_ms=10**7)
LATE = AdmissionRow(
    table="shop.orders", freshness_ms=60_000, round_ms=5_000, worst_lag_ms=90_000, feasible=True, misses=3
)
DEBT = WorkStatus(kind=WorkKind("compact"), epoch=Epoch(1), debt_files=501)
OFF = {"shop.orders": info(4, {"table.datalake.auto-compaction": "false"})}

CONDITIONS: dict[str, tuple[Facts, str, Level, str, str]] = {
    "below two rounds": (
        table(last_duration_ms=31_000),
        "freshness",
        Level.WRONG,
        "freshness 60 s, rounds take 31 s",
        "table.datalake.freshness=93 s",
    ),
    "late": (table(lag_ms=61_000), "freshness", Level.WRONG, "61 s late", "lakeward explain shop.orders"),
    "failing": (
        table(failures_in_a_row=3, state=TableState.FAILED, reason="no such bucket"),
        "freshness",
        Level.WRONG,
        "3 rounds failed in a row",
        "lakeward resume shop.orders",
    ),
    "failing by a cause that has a command": (
        table(failures_in_a_row=3, state=TableState.FAILED, reason="gone; `lakeward table restore-lake a.b` helps"),
        "freshness",
        Level.WRONG,
        "3 rounds failed in a row",
        "lakeward table restore-lake a.b",
    ),
    "paused": (
        table(state=TableState.PAUSED, waiting_rows=7),
        "blocked",
        Level.SOON,
        "paused, 7 rows wait",
        "lakeward resume shop.orders",
    ),
    "a forecast that was cut short": (
        replace(
            HEALTHY,
            admission=AdmissionAnswer(
                feasible=True, slots=1, utilisation=1.0, rows=(), words="", complete=False, simulated_ms=57_000
            ),
        ),
        "freshness",
        Level.SOON,
        "covers 57 s only",
        "the other findings",
    ),
    "blocked by what has a command": (
        table(state=TableState.PAUSED, waiting_rows=7, blocked="ahead; `lakeward table resync shop.orders` ends that"),
        "blocked",
        Level.WRONG,
        "paused, 7 rows wait",
        "lakeward table resync shop.orders",
    ),
    "cut off from its lake": (
        table(state=TableState.DISABLED, lag_ms=61_000, waiting_rows=7, blocked="datalake.enabled = false"),
        "blocked",
        Level.WRONG,
        "disabled, 7 rows wait",
        "start the server again",
    ),
    "not feasible with the slots": (
        replace(
            HEALTHY,
            admission=AdmissionAnswer(feasible=False, slots=1, utilisation=1.4, rows=(LATE,), words="", slots_needed=2),
        ),
        "freshness",
        Level.WRONG,
        "1 slot is 140% busy",
        "lakeward tier --slots 2",
    ),
    "too many buckets": (
        replace(rounds(bytes_written=400_000, files=32), tables={"shop.orders": info(32)}),
        "buckets",
        Level.SOON,
        "32 buckets, 12 kB a file, about 46,080 files a day",
        "lakeward table alter shop.orders --set 'table.datalake.freshness=2765 s'",
    ),
    "too few buckets": (
        replace(rounds(rows=6_000_000), tables={"shop.orders": info(1)}),
        "buckets",
        Level.SOON,
        "6,000,000 rows a bucket in one round",
        "more buckets",
    ),
    "files": (table(lake_files=5_001), "files", Level.WRONG, "5,001 files", "lakeward maintain shop.orders"),
    "debt": (table(work=(DEBT,)), "files", Level.WRONG, "501 of them to merge", "lakeward maintain shop.orders"),
    "compaction is off": (
        replace(HEALTHY, tables=OFF),
        "files",
        Level.SOON,
        "up to 5,760 new files a day",
        "table.datalake.auto-compaction=true",
    ),
    "compaction is off on the server": (
        server(table_defaults={"table.datalake.auto-maintenance": "false"}),
        "files",
        Level.SOON,
        "compaction is off for every table: table.datalake.auto-maintenance = false",
        "table.datalake.auto-maintenance = true in lakeward.toml",
    ),
    "nobody compacts": (
        status(jobs=(replace(JOB, kinds=(TIER,)),)),
        "files",
        Level.SOON,
        "no live job does the work compact: a cannot",
        "start the jobs again",
    ),
    "a live tail that is too long": (
        replace(
            table(waiting_rows=2_000_000),
            server=replace(SERVER, live=LiveFacts(bytes=1, max_bytes=10**9, cut_short=(PATH,))),
        ),
        "live",
        Level.WRONG,
        "2,000,000 rows wait for the lake",
        "lakeward tier-now shop.orders",
    ),
    "live answers take almost all that they may": (
        server(live=LiveFacts(bytes=9 * 10**8, max_bytes=10**9)),
        "live",
        Level.SOON,
        "900 MB of 1 GB",
        "live.max-bytes",
    ),
    "live answers take all that they may": (
        server(live=LiveFacts(bytes=10**9 - 1, max_bytes=10**9)),
        "live",
        Level.WRONG,
        "1000 MB of 1 GB",
        "live.max-bytes",
    ),
    "files of live answers that stay": (
        server(live=LiveFacts(bytes=1, max_bytes=10**9, overdue=3)),
        "live",
        Level.SOON,
        "files of 3 live answers are past live.keep",
        "the server's log",
    ),
    "a tiny table": (
        replace(rounds(rows=2, files=1, bytes_written=10**7), status=table(lake_rows=200).status),
        "tiny",
        Level.SOON,
        "200 rows, 60 in the last 30 rounds",
        "freshness=1 h",
    ),
    "one job for everything": (
        status(tables=(TABLE, replace(SLOW, last_duration_ms=40_000))),
        "pools",
        Level.SOON,
        "rounds of shop.slow take 40 s; it may wait 60 s; one slot serves both",
        "lakeward tier --slots 2",
    ),
    "the disk is full": (
        server(disk_free_bytes=10**10),
        "disk",
        Level.WRONG,
        "10 GB free of 1.0 TB",
        "table.log.ttl",
    ),
    "less than the reserve is free": (
        server(disk_reserve_bytes=2 * 10**11),
        "disk",
        Level.WRONG,
        "writes are refused: 100 GB free, 200 GB are kept in reserve",
        "a larger disk",
    ),
    "days left": (
        replace(server(hot=(replace(HOT, appended_bytes=5 * 10**10),))),
        "disk",
        Level.SOON,
        "2.0 days left: 100 GB free, logs grow by 50 GB a day",
        "a larger disk",
    ),
    "log past its time": (
        replace(hot(ttl_ms=3_600_000), status=table(lag_ms=3_700_000, freshness_ms=10**8).status),
        "retention",
        Level.WRONG,
        "the lake is 62 min behind, its log lives 60 min",
        "lakeward explain shop.orders",
    ),
    "log that is kept too short": (
        hot(ttl_ms=60_000),
        "retention",
        Level.SOON,
        "table.log.ttl 60 s, freshness 60 s",
        "table.log.ttl=7 d",
    ),
    "a job is missing": (
        status(jobs_missing=("b",)),
        "jobs",
        Level.WRONG,
        "expected, and not heard of",
        "lakeward tier --name b",
    ),
    "a job is silent": (
        status(jobs=(replace(JOB, beats_missed=10),)),
        "jobs",
        Level.WRONG,
        "silent for ten heartbeats",
        "lakeward tier --name a",
    ),
    "a pool is not served": (
        table(served=False, pool="slow"),
        "jobs",
        Level.WRONG,
        "no live job serves pool slow",
        "lakeward tier --pool slow",
    ),
    "a job lacks a plugin": (
        table(served=False),
        "jobs",
        Level.WRONG,
        "no live job of pool default has the plugin for the lake of 1 table",
        "lakeward tier",
    ),
    "pool hudi is not served": (
        table(served=False, pool="hudi"),
        "jobs",
        Level.WRONG,
        "no live job serves pool hudi",
        "lakeward tier --pool hudi",
    ),
    "nobody watches the jobs": (
        status(jobs=(JOB, replace(JOB, name=JobName("b")))),
        "jobs",
        Level.SOON,
        "2 jobs, none of them expected",
        "jobs.expected = ['a', 'b']",
    ),
    "jobs of another version": (
        status(jobs=(replace(JOB, version="0.9"),)),
        "jobs",
        Level.SOON,
        "jobs of 0.9, a server of 1",
        "start the older ones again",
    ),
    "clocks": (here(now_ms=90 * DAY - 5_000, answer_ms=500), "clocks", Level.WRONG, "4.5 s between", "NTP"),
    "the clock of a job": (
        status(jobs=(replace(JOB, clock_apart_ms=-3_000, host="west"),)),
        "clocks",
        Level.WRONG,
        "3.0 s between the job's clock and the server's",
        "NTP on west",
    ),
    "no TLS": (
        server(is_loopback=False, has_tokens=True),
        "security",
        Level.WRONG,
        "no TLS on an open address",
        "server.tls.cert",
    ),
    "no tokens": (
        server(is_loopback=False, has_tls=True),
        "security",
        Level.WRONG,
        "no tokens on an open address",
        "server.tokens",
    ),
    "a token in the open": (
        here(server_url="http://lake.example:9050", has_token=True),
        "security",
        Level.WRONG,
        "a token goes to http://lake.example:9050",
        "https",
    ),
    "the catalog is away": (
        status(lakes={"iceberg": "no answer"}),
        "lakes",
        Level.WRONG,
        "its catalog does not answer",
        "datalake.iceberg.*",
    ),
    "no right to write": (
        replace(HEALTHY, probe=ProbeAnswer(tables=(LakeProbe(path=PATH, error="denied"),))),
        "lakes",
        Level.WRONG,
        "a probe file could not be written",
        "the right to write",
    ),
    "orphans": (
        replace(HEALTHY, probe=ProbeAnswer(tables=(LakeProbe(path=PATH, orphan_files=7, orphan_bytes=2 * 10**9),))),
        "lakes",
        Level.SOON,
        "2 GB in 7 files that nothing references",
        "coordinator.orphan.interval",
    ),
    "S3 twice": (
        replace(
            here(spark_settings={"spark.hadoop.fs.s3a.endpoint": "minio:9001", PATH_STYLE: "true"}),
            lake_options={"s3.endpoint": "http://minio:9000/"},
        ),
        "storage",
        Level.WRONG,
        "s3.endpoint is http://minio:9000/, spark.hadoop.fs.s3a.endpoint is minio:9001",
        "spark-defaults.conf",
    ),
    "S3 addressed in two ways": (
        replace(
            here(spark_settings={"spark.hadoop.fs.s3a.endpoint": "minio:9000"}),
            lake_options={"s3.endpoint": "http://minio:9000"},
        ),
        "storage",
        Level.WRONG,
        "s3.force-virtual-addressing is false, spark.hadoop.fs.s3a.path.style.access is false",
        "spark.hadoop.fs.s3a.path.style.access",
    ),
    "nobody reads": (
        replace(server(up_ms=31 * DAY), status=table(state=TableState.DISABLED).status),
        "unused",
        Level.SOON,
        "rows come, and nobody has read one for 30 days",
        "table.datalake.enabled=true",
    ),
    "nobody reads the lake": (
        server(up_ms=31 * DAY, sees_lake_reads=True),
        "unused",
        Level.SOON,
        "nobody has read it through this server for 30 days",
        "lakeward table drop shop.orders",
    ),
    "nobody writes": (
        hot(written_at_ms=59 * DAY),
        "unused",
        Level.SOON,
        "no row since 1970-03-01",
        "lakeward table drop shop.orders",
    ),
    "descriptors": (server(open_files=17_000), "limits", Level.SOON, "17,000 of 20,000 files", "ulimit -n"),
    "memory": (server(memory_bytes=9 * 10**8), "limits", Level.SOON, "900 MB of 1 GB memory", "max-in-flight"),
    "a thread stands still": (server(still=("tick",)), "limits", Level.WRONG, "thread tick stands still", "start"),
    "another protocol": (here(protocol="2"), "versions", Level.WRONG, "protocol 2 here, 1 there", "lakeward[all]==1"),
    "another version": (here(version="0.9"), "versions", Level.SOON, "lakeward 0.9 here, 1 there", "pip install"),
    "an old backup": (
        server(backed_up_at_ms=80 * DAY),
        "backups",
        Level.SOON,
        "the last backup is 10.0 days old",
        "lakeward backup create",
    ),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_is_found_once_with_figure_and_way_out(name: str) -> None:
    facts, check, level, figure, mend = CONDITIONS[name]
    (finding,) = examine(facts)
    assert (finding.check, finding.level) == (check, level)
    assert figure in finding.figure
    assert mend in finding.mend
    assert finding.why.endswith((".", "denied", "no answer"))


def test_every_check_is_made_to_speak() -> None:
    spoken = {check for _, check, *_ in CONDITIONS.values()}
    assert spoken == {_noun(check) for check in CHECKS}


def _noun(check: Any) -> str:
    return str(check.__name__).removeprefix("check_")


def test_what_is_wrong_now_comes_first_and_a_table_can_be_chosen() -> None:
    facts = replace(hot(written_at_ms=1), status=table(lag_ms=61_000).status)
    assert [f.check for f in examine(facts)] == ["freshness", "unused"]
    assert examine(facts, "shop.other") == []
    assert ROUND.kind == TIER
