# SPDX-License-Identifier: Apache-2.0
"""A real server with two lakes of two formats: a job tiers one table to both, and every command finds its side."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lakeward.cli import app
from lakeward.hot.embedded.plugin import EmbeddedPlugin
from lakeward.hot.embedded.remote.http import ServerConnection
from lakeward.model import Bucket, JobName, OffsetMap, SideName
from lakeward.spi import PluginCache
from lakeward.tiering.job.job import TieringJob
from lakeward.tiering.work.dispatch import DirectDispatcher
from lakeward.tiering.work.options import TieringOptions
from lakeward.verify import verify_table
from lakeward_testing.waiting import wait_until
from tests.kit.serverprocess import ServerProcess


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    settings = {"datalake.format": "iceberg", "lakes.cold.format": "delta"}
    made = ServerProcess(tmp_path / "data", settings=settings).start()
    yield made
    made.close()


@pytest.fixture
def job(server: ServerProcess) -> Iterator[EmbeddedPlugin]:
    with working(server) as plugin:
        yield plugin


@contextmanager
def working(server: ServerProcess) -> Iterator[EmbeddedPlugin]:
    plugin = EmbeddedPlugin({"server": server.url}, ServerConnection(server.url))
    plugins = PluginCache(open_hot=lambda _name, _options: plugin)
    made = TieringJob(
        TieringOptions(heartbeat_s=0.1, slots=2),
        plugin,
        plugins,
        DirectDispatcher(plugins),
        name=JobName("sides"),
        start_thread=start_thread,
    )
    running = threading.Thread(target=made.run, daemon=True)
    running.start()
    yield plugin
    made.stop()
    running.join(120)
    plugin.store().close()
    plugin.server.close()


def start_thread(target: Callable[[], None], name: str) -> None:
    threading.Thread(target=target, name=name, daemon=True).start()


def test_one_table_in_two_lakes(server: ServerProcess, job: EmbeddedPlugin, capsys: pytest.CaptureFixture[str]) -> None:
    client = server.client()
    table = client.create_table(
        "d.t", "id BIGINT NOT NULL, v STRING", primary_key="id", properties={"table.datalake.lakes": "default, cold"}
    )
    table.upsert([{"id": n, "v": "x"} for n in range(100)])
    table.upsert([{"id": n, "v": "y"} for n in range(50)])
    assert client.tier_now("d.t", limit_s=60).rounds >= 2
    want = [{"id": n, "v": "y" if n < 50 else "x"} for n in range(100)]
    for lake in ("default", "cold"):
        rows = client.read("d.t", lake=lake, mode="lake").to_table().to_pylist()
        assert sorted(rows, key=lambda r: r["id"]) == want
        certificate = verify_table(job, table.info.path, deep=True, side=SideName(lake))
        assert (certificate.holds, certificate.rows, certificate.side) == (True, 100, SideName(lake))
    assert "cold" in run(server, capsys, "lake", "list")
    assert "lake cold (delta): answers" in run(server, capsys, "lake", "check", "cold")
    assert "d.t (cold)" in run(server, capsys, "status")
    assert "d.t (cold): holds" in run(server, capsys, "verify", "d.t")
    assert "nothing to do" in run(server, capsys, "explain", "d.t", "--lake", "cold")
    assert "d.t (cold)" in run(server, capsys, "rounds", "d.t", "--lake", "cold")
    assert "d.t (cold)" not in run(server, capsys, "rounds", "d.t", "--lake", "default")
    assert "d.t (cold): 1 data file," in run(server, capsys, "maintain", "d.t", "--lake", "cold")
    assert "`lakeward rounds d.t --lake cold`" in run(server, capsys, "maintain", "d.t", "--now", "--lake", "cold")
    assert "of d.t (cold) is off" in run(server, capsys, "maintain", "d.t", "--off", "--lake", "cold")
    assert client.show_table("d.t").descriptor.properties["table.datalake.lakes.cold.auto-maintenance"] == "false"
    assert run(server, capsys, "sql", "SELECT count(*) AS n FROM d.t", "--lake", "cold", "--json") == '{"n": 100}\n'
    assert "fits" in run(server, capsys, "table", "reconcile-schema", "d.t", "--lake", "cold")
    for command in (["explain", "d.t"], ["maintain", "d.t"], ["table", "restore-lake", "d.t"]):
        assert app.run([*command, "--lake", "nope", "--server", server.url]) == 3
        assert "d.t has no side nope; it has default, cold" in capsys.readouterr().err
    table.upsert([{"id": 7, "v": "cut"}])
    assert (
        run(server, capsys, "cut", "create", "half", "--tables", "d.t", "--wait", "60") == "cut half of d.t is ready\n"
    )
    run(server, capsys, "pause", "d.t", "--lake", "cold")
    table.upsert([{"id": 7, "v": "z"}])
    for lake in ("default", "cold"):
        assert client.read("d.t", lake=lake, cut="half", filter=[("id", "=", 7)]).to_table()["v"].to_pylist() == ["cut"]
    query = "SELECT v FROM d.t WHERE id = 7"
    assert run(server, capsys, "sql", query, "--cut", "half", "--json") == '{"v": "cut"}\n'
    assert client.server.ask("POST", "/api/v1/sql", {"query": query, "cut": "half"})["rows"] == [["cut"]]
    assert [word for word in run(server, capsys, "cut", "list").split() if word in ("half", "ready", "d.t")]
    run(server, capsys, "cut", "drop", "half")
    assert app.run(["read", "d.t", "--cut", "half", "--server", server.url]) == 3
    assert "there is no cut half" in capsys.readouterr().err
    client.tier_now("d.t", limit_s=60, lake="default")
    shown = {t["side"]: t["state"] for t in client.server.ask("GET", "/api/v1/status")["tables"]}
    assert (shown["cold"], shown["default"]) == ("paused", "scheduled")
    assert app.run(["lake", "check", "nope", "--server", server.url]) == 3
    assert "this server has default, cold" in capsys.readouterr().err


def test_changes_from_anywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The log is cut soon: the changelog has what it let go."""
    settings = {"datalake.format": "delta", "log.segment.file-size": "4kb", "log.retention.check-interval": "100 ms"}
    settings |= {"coordinator.maintenance.interval": "1 s", "kv.snapshot.interval": "500 ms"}
    with closing(ServerProcess(tmp_path / "data", settings=settings).start()) as server, working(server):
        client = server.client()
        properties = {"table.datalake.changelog": "default", "table.log.ttl": "1 s", "table.datalake.freshness": "1 s"}
        table = client.create_table("d.t", "id BIGINT NOT NULL, v STRING", primary_key="id", properties=properties)
        began = datetime.now(UTC)
        for n in range(100):
            table.upsert([{"id": n % 10, "v": f"{n:060}"}])
        client.tier_now("d.t", limit_s=60)
        wait_until(lambda: table.bounds()[Bucket("", 0)].start > 0, what="a log that is cut")
        want = [("insert", n, f"{n:060}") for n in range(10)]
        rows = client.changes("d.t", OffsetMap({Bucket("", 0): 0})).to_table().to_pylist()
        assert [(r["__change_type"], r["id"], r["v"]) for r in rows[:10]] == want
        assert [r["__offset"] for r in rows] == list(range(190))
        followed = table.subscribe(began, columns=["v"], idle_s=0.2).rows()
        assert [r["__offset"] for r in followed] == list(range(190))
        shown = [
            json.loads(line) for line in run(server, capsys, "changes", "d.t", "--limit", "3", "--json").splitlines()
        ]
        assert [(r["__change_type"], r["id"]) for r in shown] == [("insert", 0), ("insert", 1), ("insert", 2)]


def run(server: ServerProcess, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert app.run([*arguments, "--server", server.url]) == 0
    return capsys.readouterr().out
