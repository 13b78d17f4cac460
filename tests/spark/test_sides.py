# SPDX-License-Identifier: Apache-2.0
"""Real jobs and a real server with two formats and a changelog: sides that start together read the log once, as the
server counts its streams; a job that dies in the middle of a shared task, and a lake that is away, hurt no other side.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from lakeward.client import Client, Table
from lakeward.errors import TimedOut
from lakeward.hot.embedded.plugin import EmbeddedPlugin
from lakeward.hot.embedded.remote.http import ServerConnection
from lakeward.model import SideName
from lakeward.verify import verify_table
from lakeward_testing.faults import Fault, FaultAction
from lakeward_testing.waiting import wait_until
from tests.spark.conftest import SMALL_SPLITS
from tests.spark.processes import Job, Server, rounds

SETTINGS = {
    "lakes.cold.format": "delta",
    "server.audit": "all",
    "coordinator.lease.duration": "5 s",
    "coordinator.sweep.interval": "200 ms",
}
SIDES = {"table.datalake.lakes": "default, cold", "table.datalake.changelog": "default"}
ALL = ("default", "cold", "default:changelog")
KILLS = (
    "split.batch",
    "round.planned",
    "split.before-read",
    "split.written",
    "round.before-lake-commit",
    "round.after-lake-commit",
)
KILLED_AT = [*((point, hit) for point in KILLS for hit in (2, 3)), ("round.before-coordinator-commit", 1)]
"""The report of the Iceberg sides travels with their commit, so that the Delta side alone passes the last point."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("sides"), SETTINGS)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """There once the Python worker died that `on_spark` was told to kill."""
    return tmp_path_factory.mktemp("worker") / "killed"


@pytest.fixture(scope="module")
def on_spark(server: Server, killed: Path) -> Iterator[Job]:
    """One job for the tests that need Spark's own tasks; a worker of it dies in the middle of a task of one table."""
    kill = Fault(point="split.batch", action=FaultAction.KILL, hit=2, once=str(killed), table="d.worker")
    settings = {**SMALL_SPLITS, "LAKEWARD_TIERING__POOL": "spark"}
    job = Job(server, "on-spark", slots=8, settings=settings, faults=kill.to_text())
    yield job
    job.kill()


@contextmanager
def working(server: Server, name: str, **more: Any) -> Iterator[Job]:
    job = Job(server, name, settings=SMALL_SPLITS, **more)
    try:
        yield job
    finally:
        job.kill()


def create(client: Client, path: str, pool: str = "default", **more: Any) -> Table:
    properties = {**SIDES, "table.datalake.pool": pool}
    return client.create_table(path, "id BIGINT NOT NULL, v STRING", freshness="1 h", properties=properties, **more)


def some(start: int, stop: int, word: str = "x") -> list[dict[str, Any]]:
    return [{"id": n, "v": f"{word}-{n}"} for n in range(start, stop)]


def streams(server: Server, table: Table) -> int:
    """Of this table's log, as the server's own record has them."""
    lines = (server.folder / "data" / "audit" / "audit.log").read_text().splitlines()
    calls = [json.loads(line) for line in lines]
    return sum(call["what"] == "get log" and call["table"] == table.path for call in calls)


def newest(client: Client, table: Table) -> dict[str, dict[str, Any]]:
    """The last round of each side, once each has one that is told."""
    return {r["side"]: r for r in rounds(client, table) if r["outcome"] == "done"}


def tier(client: Client, table: Table) -> dict[str, dict[str, Any]]:
    """Every side up to date, by one round each; their rounds."""
    before = {r["round_id"] for r in rounds(client, table)}
    client.tier_now(table.path, limit_s=180)

    def ended() -> dict[str, dict[str, Any]] | None:
        fresh = {r["side"]: r for r in rounds(client, table) if r["round_id"] not in before}
        return fresh if set(fresh) == set(ALL) else None

    found = wait_until(ended, what=f"a round of each side of {table.path}")
    assert found is not None
    return found


def check(server: Server, table: Table, *, changes: int) -> int:
    """Every row is in each lake once, and every change in the changelog."""
    plugin = EmbeddedPlugin({"server": server.url}, ServerConnection(server.url))
    with closing(plugin.server), closing(plugin.store()):
        found = [verify_table(plugin, table.info.path, deep=True, side=SideName.parse(side)) for side in ALL]
    assert [c.holds for c in found] == [True] * 3, [c.findings for c in found if not c.holds]
    assert found[2].rows == changes
    assert found[0].rows == found[1].rows
    return found[0].rows


def test_two_formats_and_a_changelog_are_written_from_one_stream(server: Server) -> None:
    with working(server, "one", spark=False, slots=8):  # also while rounds of the table before wind up
        write_from_one_stream(server, "default")


@pytest.mark.spark
@pytest.mark.usefixtures("on_spark")
def test_spark_writes_them_from_one_stream_too(server: Server) -> None:
    write_from_one_stream(server, "spark")


def write_from_one_stream(server: Server, pool: str) -> None:
    with server.connect() as client:
        log, pk = create(client, f"d.log_{pool}", pool), create(client, f"d.pk_{pool}", pool, primary_key="id")
        log.append(some(0, 100))
        pk.upsert(some(0, 100))
        for table in (log, pk):
            tier(client, table)
        log.append(some(100, 200))
        pk.upsert(some(50, 150, "y"))
        pk.delete([{"id": 0}])
        for table in (log, pk):
            before = streams(server, table)
            ended = tier(client, table)
            assert streams(server, table) - before == 1
            assert {s: len(r["read_with"]) for s, r in ended.items()} == dict.fromkeys(ALL, 2)
            assert sorted(r["log_bytes"] > 0 for r in ended.values()) == [False, False, True]
        assert check(server, log, changes=200) == 200
        assert check(server, pk, changes=100 + 2 * 50 + 50 + 1) == 149


def test_each_task_of_a_big_round_opens_one_stream(server: Server) -> None:
    with server.connect() as client, working(server, "big", spark=False):
        log = create(client, "d.big", buckets=2)
        log.append(some(0, 2))
        tier(client, log)
        for start in range(0, 40_000, 10_000):
            log.append(some(start, start + 10_000, "a word of some length"))
        before = streams(server, log)
        ended = tier(client, log)
        assert ended["default"]["files"] == ended["cold"]["files"] > 2
        assert streams(server, log) - before == ended["default"]["files"]
        assert check(server, log, changes=40_002) == 40_002


@pytest.mark.spark
@pytest.mark.usefixtures("on_spark")
def test_a_python_worker_killed_in_the_middle_of_a_shared_task(server: Server, killed: Path) -> None:
    """Spark runs the task again, for every side."""
    with server.connect() as client:
        pk = changed(server, client, "d.worker")
        client.alter_table(pk.path, properties={"table.datalake.pool": "spark"})
        client.tier_now(pk.path, limit_s=180)
        assert killed.exists()
        assert check(server, pk, changes=100 + 2 * 50 + 50) == 150


@pytest.mark.parametrize(
    ("point", "hit"), [KILLED_AT[0], *(pytest.param(*case, marks=pytest.mark.soak) for case in KILLED_AT[1:])]
)
def test_a_job_killed_while_its_sides_read_together(point: str, hit: int, server: Server, tmp_path: Path) -> None:
    """At a step of one of them, mostly the second or third: what the others have then is in their lakes once, or not at
    all."""
    name = f"{point.replace('.', '_').replace('-', '_')}_{hit}"
    kill = Fault(point=point, action=FaultAction.KILL, hit=hit, once=str(tmp_path / "killed"))
    with server.connect() as client:
        pk = changed(server, client, f"d.{name}")
        with working(server, name, spark=False, faults=kill.to_text()) as job:
            # Behind the last lake commit the reports that travelled with the commits may be complete.
            may_be_done = point == "round.after-lake-commit"
            ending: AbstractContextManager[Any] = suppress(TimedOut) if may_be_done else pytest.raises(TimedOut)
            with ending:
                client.tier_now(pk.path, limit_s=5)
            assert job.wait() != 0
        assert (tmp_path / "killed").exists()
        with working(server, f"{name}-after", spark=False):
            client.tier_now(pk.path, limit_s=180)
            assert check(server, pk, changes=100 + 2 * 50 + 50) == 150


def changed(server: Server, client: Client, path: str) -> Table:
    """Rows that every side has, and changes that none has."""
    table = create(client, path, primary_key="id")
    table.upsert(some(0, 100))
    with working(server, f"{path}-before", spark=False):
        tier(client, table)
    table.upsert(some(50, 150, "y"))
    return table


def test_a_lake_that_is_away_holds_up_no_other_and_comes_after(server: Server) -> None:
    with server.connect() as client, working(server, "away", spark=False):
        log = create(client, "d.away")
        log.append(some(0, 10))
        tier(client, log)
        (folder,) = [p for p in (server.folder / "data").rglob("_delta_log") if "away" in str(p)]
        home = folder.parent
        home.rename(home.with_name("gone"))
        home.write_text("no folder")
        log.append(some(10, 20))
        client.tier_now(log.path, lake="default", limit_s=60)
        assert client.read(log.path, lake="default", mode="lake").to_table().num_rows == 20
        with pytest.raises(TimedOut):  # it is asked for all the same, if it did not join the other's round
            client.tier_now(log.path, lake="cold", limit_s=1)
        ended = wait_until(
            lambda: [r for r in rounds(client, log) if r["side"] == "cold" and r["outcome"] == "failed"] or None,
            what="a failed round of the lake that is away",
        )
        assert ended is not None
        log.append(some(20, 30))
        client.tier_now(log.path, lake="default", limit_s=60)
        assert newest(client, log)["default"]["read_with"] in ([], ["default:changelog"])
        home.unlink()
        home.with_name("gone").rename(home)
        client.tier_now(log.path, limit_s=180)
        assert check(server, log, changes=30) == 30
