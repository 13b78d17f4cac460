# SPDX-License-Identifier: Apache-2.0
"""`lakeward doctor` on a real server: silent while it is well, and with words for each condition that is made."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeward.cli import app
from lakeward.client import Client
from lakeward.coordinator.state.jobs import LEAST_BEATS_COMPARED
from lakeward.protocol.routes import FACTS, HEARTBEAT, JOBS
from lakeward.server.show.facts import BACKED_UP
from lakeward_testing.waiting import wait_until
from tests.spark.processes import Job, Server, status, tier_now


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Job]]:
    settings = {"jobs.expected": "hand", "table.datalake.auto-compaction": "true"}
    settings["coordinator.heartbeat.interval"] = "2 s"  # of which ten pass before a job that got no turn is missed
    server = Server(tmp_path_factory.mktemp("doctor"), settings)
    job = Job(server, "hand", spark=False, slots=1)
    with server.connect() as client:
        wait_until(
            lambda: any(j["live"] for j in client.server.ask("GET", JOBS)["jobs"]),
            what="the job",
            state=job.text,
        )
    yield server, job
    job.kill()
    server.kill()


@pytest.fixture
def examined(world: tuple[Server, Job], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("LAKEWARD_SERVER", world[0].url)
    monkeypatch.delenv("SPARK_HOME", raising=False)

    def run(*arguments: str) -> tuple[int, list[tuple[str, str, str]]]:
        code = app.run(["doctor", "--json", *arguments])
        told = json.loads(capsys.readouterr().out)["findings"]
        return code, [(f["check"], f["about"], f["figure"]) for f in told]

    return run


@pytest.fixture
def mends(examined: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    """Commands that the doctor names."""

    def run(*arguments: str) -> list[str]:
        app.run(["doctor", "--json", *arguments])
        return [f["mend"] for f in json.loads(capsys.readouterr().out)["findings"]]

    return run


def test_jobs_storage_and_limits_are_found(
    world: tuple[Server, Job], examined: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = world
    with server.connect() as client:
        table = client.create_table("doc.many", "id bigint", freshness="1 min", buckets=4)
        for number in range(3):
            table.append([{"id": number}] * 8)
            tier_now(client, table)
        (buckets,) = examined()[1]
        assert (buckets[:2], buckets[2].startswith("4 buckets, ")) == (("buckets", "doc.many"), True)

        (hot,) = client.server.ask("GET", FACTS)["hot"]
        assert hot["read_at_ms"] is None, "the rounds of its job read nothing"
        client.server.ask("GET", "/iceberg/v1/namespaces/doc/tables/many")
        (hot,) = client.server.ask("GET", FACTS)["hot"]
        assert hot["read_at_ms"] is not None

        (data,) = (server.folder / "data" / "warehouse").glob("**/many*/data")
        kept = next(data.rglob("*.parquet"))
        left = kept.with_name(f"{kept.name[:9]}left-behind.parquet")
        with left.open("wb") as file:
            file.truncate(200_000_000)
        os.utime(left, (0, 1_000_000_000))
        assert ("lakes", "doc.many", "200 MB in 1 file that nothing references") in examined("--probe")[1]
        client.drop_table("doc.many")
        assert examined() == (0, [])

        beat = {"job": "other", "instance": "o-1", "slots": 1, "version": "0.0.1", "now_ms": 1_000}
        for _ in range(LEAST_BEATS_COMPARED):  # one beat may have been long on its way
            client.server.ask("POST", HEARTBEAT, beat)
        found = {(check, about): figure for check, about, figure in examined()[1]}
        assert found["jobs", "other"].startswith("jobs of 0.0.1, ")
        assert "between the job's clock and the server's" in found["clocks", "other"]
        client.server.ask("POST", HEARTBEAT, {**beat, "leaving": True})

    (tmp_path / "lakeward.toml").write_text('datalake.iceberg."s3.endpoint" = "http://a:9000"\n')
    (tmp_path / "spark-defaults.conf").write_text("spark.hadoop.fs.s3a.endpoint http://b:9000\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert {"storage"} == {check for check, _, _ in examined()[1]}
    (tmp_path / "spark-defaults.conf").write_text("spark.hadoop.fs.s3a.endpoint http://a:9000\n")
    ((_, _, figure),) = examined()[1]
    assert figure == "s3.force-virtual-addressing is false, spark.hadoop.fs.s3a.path.style.access is false"
    monkeypatch.delenv("SPARK_CONF_DIR")

    assert server.process is not None
    pid = server.process.child.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    opened = len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (opened + opened // 8, before[1]))
    try:
        ((check, about, figure),) = examined()[1]
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    assert (check, about, "files are open" in figure) == ("limits", "server", True)


def test_slots_that_are_too_few_and_a_long_round_before_a_short_one_are_found(
    world: tuple[Server, Job], examined: Any
) -> None:
    with world[0].connect() as client:
        took = dict[str, int]()
        for name in ("doc.one", "doc.two", "doc.three"):
            table = client.create_table(name, "id bigint", freshness="1 h", buckets=1)
            table.append([{"id": 1}])
            tier_now(client, table)
            took[name] = status(client, name)["last_duration_ms"]
        assert examined() == (0, [])

        quick, *_, slow = sorted(took, key=lambda name: took[name])
        _set_freshness(client, quick, 2 * took[slow] - 1)
        ((_, _, figure),) = [f for f in examined()[1] if f[:2] == ("pools", quick)]
        assert re.fullmatch(r"rounds of doc\.\w+ take .*; it may wait .*; one slot serves both", figure)
        for name, ms in took.items():
            _set_freshness(client, name, 2 * ms + ms // 2)
        code, found = examined()
        assert code == 1
        assert any(c == "freshness" and f.startswith("1 slot is ") for c, _, f in found), found
        for name in took:
            client.drop_table(name)


def _set_freshness(client: Client, table: str, ms: int) -> None:
    client.alter_table(table, properties={"table.datalake.freshness": f"{ms} ms"})


def test_conditions_are_found_when_they_are_made(world: tuple[Server, Job], examined: Any, mends: Any) -> None:
    server, job = world
    with server.connect() as client:
        rows = [{"id": i} for i in range(10)]
        well = client.create_table("doc.well", "id bigint", freshness="1 min", buckets=2)
        well.append(rows)
        tier_now(client, well)
        assert examined() == (0, [])
        assert examined("--probe") == (0, [])

        client.create_table("doc.alone", "id bigint", properties={"table.datalake.pool": "slow"})
        assert ("jobs", "doc.alone", "no live job serves pool slow, which has 1 table") in examined()[1]
        client.drop_table("doc.alone")

        client.alter_table("doc.well", properties={"table.log.ttl": "1 min", "table.datalake.auto-compaction": "false"})
        code, found = examined("--table", "doc.well")
        assert (code, sorted(found)) == (
            0,
            [
                ("files", "doc.well", "compaction is off; up to 2,880 new files a day"),
                ("retention", "doc.well", "table.log.ttl 60 s, freshness 60 s"),
            ],
        )
        client.alter_table("doc.well", properties={"table.log.ttl": None, "table.datalake.auto-compaction": None})

        quick = client.create_table("doc.quick", "id bigint", freshness="10 ms")
        quick.append(rows)
        tier_now(client, quick)
        code, found = examined("--table", "doc.quick")
        assert (code, found[0][0], "at a freshness of 0.0 s" in found[0][2] or "rounds take" in found[0][2]) == (
            1,
            "freshness",
            True,
        )
        client.drop_table("doc.quick")

        gone = client.create_table("doc.gone", "id bigint", freshness="1 s")
        client.server.ask("DELETE", "/iceberg/v1/namespaces/doc/tables/gone")
        gone.append(rows)
        wait_until(
            lambda: any(c == "freshness" and "failed in a row" in f for c, _, f in examined("--table", "doc.gone")[1]),
            what="the doctor to see rounds that fail",
        )
        assert mends("--table", "doc.gone") == ["lakeward table restore-lake doc.gone"]
        client.drop_table("doc.gone")

        client.create_table("doc.barred", "id bigint", freshness="1 min")
        (folder,) = (server.folder / "data" / "warehouse").glob("**/barred*")
        (folder / "data").write_text("a file where a folder should be")
        assert ("lakes", "doc.barred", "a probe file could not be written and deleted") in examined("--probe")[1]
        client.drop_table("doc.barred")

        mark = server.folder / "data" / BACKED_UP
        mark.touch()
        assert examined() == (0, [])
        os.utime(mark, (0, 1_000_000_000))
        assert [c for c, _, _ in examined()[1]] == ["backups"]
        mark.unlink()

        job.kill()
        wait_until(
            lambda: ("jobs", "hand", "silent for ten heartbeats or more") in examined()[1],
            poll_s=0.5,
            what="the doctor to miss the job",
        )


def test_preflight_names_what_would_go_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lakeward.toml").write_text('server.port = 0\nserver.flight-port = 0\ndatalake.format = "iceberg"\n')
    assert app.run(["preflight", "--data", str(tmp_path / "data")]) == 0, capsys.readouterr().out
    assert capsys.readouterr().out == "ready to start\n"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("LAKEWARD_SERVER__PORT", str(taken.getsockname()[1]))
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
        assert app.run(["preflight", "--json"]) == 1
        told = {f["check"]: f["figure"] for f in json.loads(capsys.readouterr().out)["findings"]}
        assert told == {"ports": f"port {taken.getsockname()[1]} is taken", "java": "no Java"}
    monkeypatch.setenv("LAKEWARD_SERVER__PORT", "0")
    monkeypatch.setenv("LAKEWARD_SERVER__HOST", "0.0.0.0")
    monkeypatch.delenv("JAVA_HOME")
    assert app.run(["preflight"]) == 1
    assert "token" in capsys.readouterr().out


@pytest.mark.soak
def test_what_is_wrong_with_a_whole_server_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(
        tmp_path, {"table.datalake.auto-maintenance": "false", "server.disk.reserve": "900 tb", "jobs.expected": "west"}
    )
    try:
        with server.connect() as client:
            client.create_table("doc.orders", "id bigint", freshness="1 min")
        monkeypatch.setenv("LAKEWARD_SERVER", server.url)
        app.run(["doctor", "--json"])
        found = json.loads(capsys.readouterr().out)["findings"]
        told = {(f["check"], f["about"]): f["figure"] for f in found}
        assert {("files", "server"), ("disk", "server")} <= set(told)
        assert told["jobs", "west"] == "expected, and not heard of"
    finally:
        server.kill()
