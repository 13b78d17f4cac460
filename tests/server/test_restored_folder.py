# SPDX-License-Identifier: Apache-2.0
"""A folder that `lakeward backup restore` made knows that it is older than its lakes. A start without a lake that
tables are in is refused with the settings that are missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from lakeward.cli import app
from lakeward.client import Client
from lakeward.errors import LakewardError, TimedOut, WritesPaused
from lakeward_testing.waiting import wait_until
from tests.kit.advice import commands_of
from tests.kit.serverprocess import ServerProcess
from tests.spark.processes import Job, tier_now

LOG, PK = "shop.clicks", "shop.orders"
SOAK = [pytest.param(name, marks=pytest.mark.soak) for name in ("delta", "lance", "hudi")]
FORMATS = ["iceberg", "paimon", *SOAK]
StartServer = Callable[..., ServerProcess]


class World:
    """A server with one lake and a job on threads; both are killed at the end."""

    def __init__(self, start: StartServer, folder: Path, settings: dict[str, str]) -> None:
        self.start, self.folder, self.settings = start, folder, settings
        self.backups = folder / "backups"
        self.jobs: list[Job] = []
        self.url = ""
        self.server = self.serve("data", settings)

    def serve(self, name: str, settings: dict[str, str]) -> ServerProcess:
        """On that folder; the job serves it."""
        self.server = self.start(name, settings={"coordinator.tick": "50 ms", **settings})
        self.url = self.server.url
        for job in self.jobs:
            job.kill()
        self.jobs = [Job(self, "job", spark=False)]
        return self.server

    def fill(self) -> Client:
        """A log and a PK table with a row each in the lake, a backup, and another row in the lake."""
        client = self.server.client()
        client.create_table(LOG, "id BIGINT", freshness="1 h")
        client.create_table(PK, "id BIGINT NOT NULL, state STRING", primary_key="id", freshness="1 h")
        self.write(client, 1)
        assert app.run(["backup", "create", str(self.backups), "--server", self.url]) == 0
        self.write(client, 2)
        return client

    def write(self, client: Client, number: int) -> None:
        client.table(LOG).append([{"id": number}])
        client.table(PK).upsert([{"id": number, "state": "new"}])
        for path in (LOG, PK):
            tier_now(client, client.table(path))

    def restore(self) -> None:
        self.server.stop()
        assert app.run(["backup", "restore", str(self.backups), "--data", str(self.folder / "restored")]) == 0


@pytest.fixture
def make_world(start_server: StartServer, tmp_path: Path) -> Iterator[Callable[[dict[str, str]], World]]:
    worlds: list[World] = []

    def make(settings: dict[str, str]) -> World:
        worlds.append(World(start_server, tmp_path, settings))
        return worlds[-1]

    yield make
    for job in [job for world in worlds for job in world.jobs]:
        job.kill()


def lake_ids(client: Client, path: str) -> list[int]:
    return sorted(client.read(path, mode="lake").to_table().column("id").to_pylist())


@pytest.mark.parametrize("format_name", FORMATS)
def test_an_ordinary_start_keeps_what_only_the_lake_has(
    make_world: Callable[[dict[str, str]], World], tmp_path: Path, format_name: str
) -> None:
    """Nobody says --restored: the folder says it."""
    key = f"datalake.{format_name}.warehouse"
    settings = {"datalake.format": format_name, key: (tmp_path / "warehouse").as_uri()}
    world = make_world(settings)
    world.fill()
    world.restore()
    with world.serve("restored", settings).client() as client:
        log = client.table(LOG)
        log.append([{"id": 3}])
        tier_now(client, log)
        assert lake_ids(client, LOG) == [1, 2, 3]
        assert app.run(["status", "--server", world.url]) == 1, "the other table waits for a resync"
        assert app.run(["table", "resync", PK, "--wait", "120", "--server", world.url]) == 0
        client.table(PK).upsert([{"id": 3, "state": "new"}])
        tier_now(client, client.table(PK))
        assert lake_ids(client, PK) == [1, 2, 3]
        assert app.run(["status", "--server", world.url]) == 0
        assert not (world.server.data / "restored.json").exists(), "its lakes were read: it is as new as they are"
    world.server.stop()
    with world.serve("restored", settings).client() as client:
        assert lake_ids(client, LOG) == [1, 2, 3]


@pytest.mark.parametrize("format_name", FORMATS)
def test_rows_that_cannot_be_loaded_go_with_the_command_that_says_so(
    make_world: Callable[[dict[str, str]], World],
    tmp_path: Path,
    format_name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After the backup the table got a column, which the backup does not know."""
    settings = {"datalake.format": format_name, f"datalake.{format_name}.warehouse": (tmp_path / "warehouse").as_uri()}
    world = make_world(settings)
    with world.fill() as client:
        assert app.run(["table", "alter", PK, "--add-column", "note STRING", "--server", world.url]) == 0
        client.table(PK).upsert([{"id": 1, "state": "paid", "note": "by card"}])
        tier_now(client, client.table(PK))
    world.restore()
    with world.serve("restored", settings).client() as client:
        wait_until(lambda: app.run(["status", PK, "--server", world.url]) != 0, what="the table to be paused")
        capsys.readouterr()
        assert app.run(["table", "resync", PK, "--server", world.url]) != 0
        refused = capsys.readouterr().err
        assert "up to 3 changes are newer in the lake and cannot be loaded (column note: " in refused
        (command,) = [c for c in commands_of(refused) if "--discard-newer" in c]
        assert app.run([*command.split(), "--wait", "120", "--server", world.url]) == 0
        assert client.read(PK, mode="lake").to_table().select(["id", "state"]).to_pylist() == [
            {"id": 1, "state": "new"}
        ]
        client.table(PK).upsert([{"id": 3, "state": "new"}])
        tier_now(client, client.table(PK))
        assert lake_ids(client, PK) == [1, 3]
        assert app.run(["verify", PK, "--deep", "--server", world.url]) == 0
        assert app.run(["status", PK, "--server", world.url]) == 0


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_start_without_the_lake_of_the_backup_is_refused_with_its_settings(
    make_world: Callable[[dict[str, str]], World],
    tmp_path: Path,
    format_name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    key, place = f"datalake.{format_name}.warehouse", (tmp_path / "warehouse").as_uri()
    world = make_world({"datalake.format": format_name, key: place})
    world.fill()
    capsys.readouterr()
    world.restore()
    printed = capsys.readouterr().err
    for configured in ({}, {"datalake.format": format_name}, {"datalake.format": "memory"}):
        with pytest.raises(TimedOut) as refused:
            world.start("restored", settings=configured)
        for part in (LOG, PK, f'datalake.format = "{format_name}"', f'{key} = "{place}"'):
            assert part in str(refused.value), (configured, part)
    command = re.search(r"lakeward (server --data .*)", printed)
    assert command is not None, printed
    assert f"--set datalake.format={format_name} --set {key}={place}" in command[1]
    world.serve("restored", {"datalake.format": format_name, key: place})


def test_a_restored_folder_elsewhere_asks_for_the_warehouse_that_stayed(
    make_world: Callable[[dict[str, str]], World],
) -> None:
    """The warehouse was in the old folder by default; in the new one there is none."""
    world = make_world({"datalake.format": "paimon"})
    world.fill()
    world.restore()
    with pytest.raises(TimedOut) as refused:
        world.start("restored", settings={"datalake.format": "paimon"})
    told = re.search(r'datalake\.paimon\.warehouse = "([^"]+)"', str(refused.value))
    assert told is not None, refused.value
    assert told[1] == str(world.folder / "data" / "warehouse")
    settings = {"datalake.format": "paimon", "datalake.paimon.warehouse": told[1]}
    with world.serve("restored", settings).client() as client:
        assert lake_ids(client, LOG) == [1, 2]


def test_a_write_to_a_table_that_waits_for_its_lake_is_refused_with_the_lake(
    make_world: Callable[[dict[str, str]], World], tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    settings = {
        "datalake.format": "iceberg",
        "datalake.iceberg.type": "sql",
        "datalake.iceberg.uri": f"sqlite:///{lake}/catalog.db",
        "datalake.iceberg.warehouse": lake.as_uri(),
    }
    world = make_world(settings)
    world.fill()
    world.restore()
    lake.rename(tmp_path / "away")
    client = world.serve("restored", settings).client()
    log, pk = client.table(LOG), client.table(PK)
    for write in (partial(log.append, [{"id": 3}]), partial(pk.upsert, [{"id": 3, "state": "new"}])):
        with pytest.raises(WritesPaused, match=r"restored from a backup, and lake .* has not said") as refused:
            write()
        assert not refused.value.retryable, "a client says it at once"
    (tmp_path / "away").rename(lake)
    wait_until(lambda: client.table(LOG).append([{"id": 3}]), what="the lake's answer", tolerate=(LakewardError,))
    tier_now(client, client.table(LOG))
    assert lake_ids(client, LOG) == [1, 2, 3]
