# SPDX-License-Identifier: Apache-2.0
"""Backups of a server that works: what was acknowledged before one began comes back elsewhere, and the proof holds."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lakeward.cli import app
from lakeward.client import Client
from lakeward.errors import InvalidRequest, LakewardError
from lakeward.model import TablePath
from lakeward.server.backups import list_backups, restore_backup
from lakeward.verify import verify_table
from lakeward_testing.waiting import wait_until
from tests.kit.iceberg.s3 import s3_store
from tests.kit.serverprocess import ServerProcess
from tests.spark.processes import Job, Server, status, tier_now

LOG, PK = "shop.clicks", "shop.orders"
StartServer = Callable[..., ServerProcess]


class Writers:
    """Two producers that go on until they are stopped; `acknowledged` are the ids that the server has for sure."""

    def __init__(self, server: Server) -> None:
        self.acknowledged: dict[str, list[int]] = {LOG: [], PK: []}
        self.stopping, self.failures = threading.Event(), list[Exception]()
        self._threads = [threading.Thread(target=self._run, args=(server, path)) for path in (LOG, PK)]
        for thread in self._threads:
            thread.start()

    def _run(self, server: Server, path: str) -> None:
        with server.connect() as client:
            table, number = client.table(path), 0
            try:
                while not self.stopping.is_set():
                    rows = [{"id": number + i, "state": "x" * 200} for i in range(50)]
                    table.append(rows) if path == LOG else table.upsert(rows)
                    self.acknowledged[path] += range(number, number + 50)
                    number += 50
                    self.stopping.wait(0.02)  # some thousand rows are load enough
            except LakewardError as error:
                self.failures.append(error)

    def stop(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join()
        assert self.failures == []


def ids(client: Client, path: str) -> list[int]:
    found: list[int] = client.read(path).to_table().column("id").to_pylist()
    return sorted(found)


def test_a_backup_under_load_comes_back_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = {"datalake.iceberg.warehouse": f"file://{tmp_path}/warehouse"}
    server = Server(tmp_path / "server", {**lake, "log.segment.file-size": "64 kb", "kv.snapshot.interval": "1 s"})
    job = Job(server, "job", spark=False)
    writers: Writers | None = None
    try:
        with server.connect() as client:
            columns: dict[str, Any] = {
                "columns": "id BIGINT NOT NULL, state STRING",
                "freshness": "500 ms",
                "buckets": 2,
            }
            client.create_table(LOG, **columns)
            client.create_table(PK, primary_key="id", **columns)
            writers = Writers(server)
            for path in (LOG, PK):
                wait_until(
                    lambda path=path: (status(client, path)["lake_rows"] or 0) > 500,  # type: ignore[misc]
                    what=f"rows of {path} in the lake",
                )
            before = {path: list(numbers) for path, numbers in writers.acknowledged.items()}
            assert app.run(["backup", "create", str(tmp_path / "backups"), "--server", server.url, "--json"]) == 0
            made = json.loads(capsys.readouterr().out)
            counts = {path: len(numbers) for path, numbers in writers.acknowledged.items()}
            wait_until(
                lambda: all(len(n) > counts[p] + 200 for p, n in writers.acknowledged.items()),
                what="writes that go on after the backup",
            )
            writers.stop()
        job.kill()
        server.stop()

        assert app.run(["backup", "restore", str(tmp_path / "backups"), "--data", str(tmp_path / "b" / "data")]) == 0
        assert made["name"] in capsys.readouterr().out
        other = Server(tmp_path / "b", {**lake, "server.restored": "true"})
        job = Job(other, "job", spark=False)  # under its name it takes over what the backup says it had
        server = other
        with other.connect() as client:
            log, pk = client.table(LOG), client.table(PK)
            missing = sorted(set(before[LOG]) - set(ids(client, LOG)))
            assert missing == [], f"of {len(before[LOG])} rows"
            got = pk.lookup([{"id": i} for i in before[PK]]).column("state").null_count
            assert got == 0, f"of {len(before[PK])} keys"
            log.append([{"id": -1, "state": "new"}])
            tier_now(client, log)
            assert app.run(["table", "resync", PK, "--server", other.url]) == 0
            wait_until(
                lambda: pk.upsert([{"id": -1, "state": "new"}]),
                what="the resync",
                tolerate=(LakewardError,),
                state=lambda: str(status(client, PK)),
            )
            tier_now(client, pk)
            for path in (LOG, PK):
                found = verify_table(client.plugin, TablePath.parse(path), deep=True)
                assert found.holds, found.all_findings
                numbers = ids(client, path)
                assert len(numbers) == len(set(numbers)), "no row twice"
    finally:
        if writers is not None:
            writers.stopping.set()
        job.kill()
        server.kill()


@pytest.mark.parametrize(
    "format_name",
    ["iceberg", *(pytest.param(name, marks=pytest.mark.soak) for name in ("paimon", "delta", "lance", "hudi"))],
)
def test_a_backup_with_its_lake_comes_back_when_all_is_lost(
    format_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rounds go on while it is made; then the data folder goes, and the warehouse in it."""
    server = Server(tmp_path / "server", {"datalake.format": format_name})
    job = Job(server, "job", spark=False)
    target = str(tmp_path / "backups")
    writers: Writers | None = None
    try:
        with server.connect() as client:
            for path, key in ((LOG, ""), (PK, "id")):
                client.create_table(path, "id BIGINT NOT NULL, state STRING", primary_key=key, freshness="300 ms")
            writers = Writers(server)
            for path in (LOG, PK):
                wait_until(
                    lambda path=path: (status(client, path)["lake_rows"] or 0) > 500,  # type: ignore[misc]
                    what=f"rows of {path} in the lake",
                )
            before = {path: list(numbers) for path, numbers in writers.acknowledged.items()}
            assert app.run(["backup", "create", target, "--with-lake", "--server", server.url]) == 0
            assert "with lake default: " in capsys.readouterr().out
            writers.stop()
        job.kill()
        server.stop()
        shutil.rmtree(server.folder / "data")

        data = str(tmp_path / "b" / "data")
        assert app.run(["backup", "restore", target, "--data", data]) == 0
        assert "--with-lake brings it back" in capsys.readouterr().err
        shutil.rmtree(data)
        assert app.run(["backup", "restore", target, "--data", data, "--with-lake"]) == 0
        told = capsys.readouterr()
        assert f"lake default is in {server.folder / 'data' / 'warehouse'}" in told.out
        (command,) = re.findall(r"start it with: lakeward server (.*)", told.err)
        given = shlex.split(command)
        settings = dict(s.split("=", 1) for flag, s in pairwise(given) if flag == "--set")
        server = Server(tmp_path / "b", settings)
        job = Job(server, "job", spark=False)
        with server.connect() as client:
            if status(client, PK)["blocked"]:
                assert app.run(["table", "resync", PK, "--wait", "120", "--server", server.url]) == 0
            for path in (LOG, PK):
                tier_now(client, client.table(path))
                assert sorted(set(before[path]) - set(ids(client, path))) == []
                numbers = sorted(client.read(path, mode="lake").to_table().column("id").to_pylist())
                assert len(numbers) == len(set(numbers)), "no row twice"
                found = verify_table(client.plugin, TablePath.parse(path), deep=True)
                assert not found.all_findings, found.all_findings
    finally:
        if writers is not None:
            writers.stopping.set()
        job.kill()
        server.kill()


def test_a_lake_that_is_still_there_is_left_alone(
    start_server: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start_server(settings={"datalake.format": "iceberg"})
    server.client().create_table(LOG, "id BIGINT")
    target = str(tmp_path / "saved")
    assert app.run(["backup", "create", target, "--with-lake", "--server", server.url]) == 0
    server.stop()
    (server.data / "warehouse" / "later").touch()
    assert app.run(["backup", "restore", target, "--data", str(tmp_path / "back"), "--with-lake"]) == 0
    assert f"lake default was left as it is: there are files in {server.data / 'warehouse'}" in capsys.readouterr().err
    assert (server.data / "warehouse" / "later").exists()


def test_a_lake_elsewhere_is_named_and_left_out(
    start_server: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    settings = {"datalake.format": "iceberg", "datalake.iceberg.type": "sql", "datalake.iceberg.uri": uri}
    server = start_server(settings={**settings, "datalake.iceberg.warehouse": f"file://{tmp_path}/warehouse"})
    target = str(tmp_path / "saved")
    assert app.run(["backup", "create", target, "--with-lake", "--server", server.url]) == 0
    assert f"not in it: lake default, at uri={uri}" in capsys.readouterr().err
    assert app.run(["backup", "restore", target, "--data", str(tmp_path / "back"), "--with-lake"]) == 2
    assert "no lake is in it" in capsys.readouterr().err


@pytest.fixture
def written(start_server: StartServer) -> tuple[ServerProcess, Client]:
    server = start_server()
    client = server.client()
    client.create_table(PK, "id BIGINT NOT NULL", primary_key="id", lake=False).upsert([{"id": i} for i in range(100)])
    return server, client


def test_backups_go_to_s3_and_come_back(
    written: tuple[ServerProcess, Client], start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_store() as store:
        endpoint, bucket = (
            store.options["s3.endpoint"].removeprefix("http://"),
            store.new_bucket().removeprefix("s3://"),
        )
        user, secret = store.environment["AWS_ACCESS_KEY_ID"], store.environment["AWS_SECRET_ACCESS_KEY"]
        target = f"s3://{user}:{secret}@{bucket}/saved?scheme=http&endpoint_override={endpoint}&region=us-east-1"
        assert app.run(["backup", "create", target, "--server", written[0].url]) == 0
        assert app.run(["backup", "restore", target, "--data", str(tmp_path / "back")]) == 0
    written[0].stop()
    client = start_server("back", arguments=["--restored"]).client()
    assert ids(client, PK) == list(range(100))


def test_a_backup_that_is_not_whole_is_not_taken(
    written: tuple[ServerProcess, Client], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, _ = written
    target = tmp_path / "saved"
    for _ in range(2):
        assert app.run(["backup", "create", str(target), "--server", server.url]) == 0
    older, newer = list_backups(str(target))
    (target / older.name / "backup.json").unlink()
    assert [m.name for m in list_backups(str(target))] == [newer.name]
    with pytest.raises(InvalidRequest, match=f"there is {newer.name}"):
        restore_backup(str(target), tmp_path / "back", older.name)
    (file,) = (target / newer.name).glob("files/tables/*/p0/b0/log/*0.log")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(InvalidRequest, match=r"log/0+\.log is not what was written"):
        restore_backup(str(target), tmp_path / "back")
    assert not (tmp_path / "back").exists()
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidRequest, match="lies elsewhere"):
        restore_backup(str(target), tmp_path / "back")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").touch()
    with pytest.raises(InvalidRequest, match="it is not empty"):
        restore_backup(str(target), tmp_path / "full")
    capsys.readouterr()
    inside: Any = server.data / "saved"
    assert app.run(["backup", "create", str(inside), "--server", server.url]) == 2
    assert "lies in the data folder" in capsys.readouterr().err


@pytest.mark.parametrize("point", ["backup.before-cut", "backup.before-manifest"])
def test_a_backup_that_a_kill_broke_off_is_none(
    point: str, start_server: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tmp_path / "saved")
    server = start_server(environment={"LAKEWARD_FAULTS": f"{point}=kill"})
    server.client().create_table("d.t", "id BIGINT", lake=False).append([{"id": 1}])
    assert app.run(["backup", "create", target, "--server", server.url]) != 0
    assert list_backups(target) == []
    server.kill()
    server.environment = {}
    server.start()
    assert app.run(["backup", "create", target, "--server", server.url]) == 0, capsys.readouterr().err
    assert len(list_backups(target)) == 1
