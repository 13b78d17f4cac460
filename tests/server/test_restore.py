# SPDX-License-Identifier: Apache-2.0
"""Backup and restore as docs/operating tells it: a folder older than the lake comes back, and no offset names
two rows.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakeward.cli import app
from lakeward.client import Client, connect
from lakeward.config import resolve
from lakeward.errors import LakeMetadataGone, LakewardError, TimedOut, WritesPaused
from lakeward.lake.iceberg.connect.forward import move_forward
from lakeward.lake.iceberg.plugin import IcebergLakeStorage, load
from lakeward.model import TablePath
from lakeward.verify import verify_table
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.waiting import wait_until
from tests.kit.iceberg.folder import folder_options
from tests.kit.iceberg.s3 import s3_store
from tests.kit.serverprocess import ServerProcess
from tests.spark.processes import Job, Server, status, tier_now

StartServer = Callable[..., ServerProcess]
LOG, PK = "shop.clicks", "shop.orders"


def certify(client: Client, *paths: str) -> None:
    for path in paths:
        found = verify_table(client.plugin, TablePath.parse(path), deep=True)
        assert found.holds, found.all_findings


def lake_ids(client: Client, path: str) -> list[int]:
    return sorted(client.read(path, mode="lake").to_table().column("id").to_pylist())


def resync(client: Client, row: dict[str, Any]) -> None:
    """The PK table takes rows again, this one first, and the lake has it."""
    pk = client.table(PK)
    assert app.run(["table", "resync", PK, "--server", client.url]) == 0
    wait_until(
        lambda: pk.upsert([row]),
        what="the resync",
        tolerate=(LakewardError,),
        state=lambda: str(status(client, PK)),
    )
    tier_now(client, pk)


def test_a_restored_folder_goes_on_above_its_lake(tmp_path: Path) -> None:
    """The catalog is not in the folder, as with any that is not embedded: the lake is ahead of what comes back."""
    elsewhere = tmp_path / "lake"
    elsewhere.mkdir()
    settings = {
        "datalake.iceberg.type": "sql",
        "datalake.iceberg.uri": f"sqlite:///{elsewhere}/catalog.db",
        "datalake.iceberg.warehouse": f"file://{elsewhere}",
    }
    server = Server(tmp_path / "server", settings)
    job = Job(server, "job", spark=False)
    try:
        with server.connect() as client:
            log = client.create_table(LOG, "id BIGINT", freshness="1 h")
            pk = client.create_table(PK, "id BIGINT NOT NULL, state STRING", primary_key="id", freshness="1 h")
            log.append([{"id": 1}])
            pk.upsert([{"id": 1, "state": "new"}])
            tier_now(client, log)
            tier_now(client, pk)
        server.stop()
        shutil.copytree(server.folder / "data", tmp_path / "backup")
        server.start()
        with server.connect() as client:
            client.table(LOG).append([{"id": 2}])
            client.table(PK).upsert([{"id": 2, "state": "new"}])
            tier_now(client, client.table(LOG))
            tier_now(client, client.table(PK))
        server.stop()
        shutil.rmtree(server.folder / "data")
        (tmp_path / "backup").rename(server.folder / "data")
        server.settings["server.restored"] = "true"
        server.start()
        with server.connect() as client:
            log, pk = client.table(LOG), client.table(PK)
            log.append([{"id": 3}])
            tier_now(client, log)
            assert lake_ids(client, LOG) == [1, 2, 3], "rows that only the lake has stay, new ones come above them"
            with pytest.raises(LakewardError, match="resync"):
                pk.upsert([{"id": 3, "state": "new"}])
            resync(client, {"id": 3, "state": "new"})
            assert lake_ids(client, PK) == [1, 2, 3], "what was newer in the lake is back in the hot store"
            certify(client, LOG, PK)
    finally:
        job.kill()
        server.kill()


@pytest.mark.soak
def test_an_old_catalog_comes_back_to_a_lake_that_outgrew_it(tmp_path: Path) -> None:
    """The catalog is the embedded one, the warehouse is elsewhere. 22 rounds after the copy the metadata file that it
    names is gone: an ordinary start says so and takes no writes, --restored moves the catalog forward."""
    server = Server(tmp_path / "server", {"datalake.iceberg.warehouse": f"file://{tmp_path}/warehouse"})
    data, backup = server.folder / "data", tmp_path / "backup"
    job = Job(server, "job", spark=False)
    try:
        with server.connect() as client:
            log = client.create_table(LOG, "id BIGINT", freshness="1 h")
            few = {"iceberg.write.metadata.previous-versions-max": "1"}
            pk = client.create_table(
                PK, "id BIGINT NOT NULL, state STRING", primary_key="id", freshness="1 h", properties=few
            )
            log.append([{"id": 0}])
            pk.upsert([{"id": 0, "state": "new"}])
            tier_now(client, log)
            tier_now(client, pk)
        server.stop()
        shutil.copytree(data, backup)
        server.start()
        with server.connect() as client:
            for number in range(1, 23):
                client.table(LOG).append([{"id": number}])
                tier_now(client, client.table(LOG))
            for number in range(1, 4):
                client.table(PK).upsert([{"id": number, "state": "new"}])
                tier_now(client, client.table(PK))
        server.stop()
        shutil.rmtree(data)
        backup.rename(data)

        server.start()
        with server.connect() as client:
            wait_until(
                lambda: all(
                    "lakeward server --restored" in (status(client, path)["reason"] or "") for path in (LOG, PK)
                ),
                what="the reasons why both stand still",
                state=lambda: str([status(client, path) for path in (LOG, PK)]),
            )
        hurried = resolve(arguments={"client.writer.retry-timeout": "100 ms"})
        with (
            connect(server.url, config=hurried) as client,
            pytest.raises(WritesPaused, match="lakeward server --restored"),
        ):
            client.table(LOG).append([{"id": 100}])
        server.stop()

        server.settings["server.restored"] = "true"
        server.start()
        assert server.process is not None
        assert re.search(rf"lake table {LOG}: moved from version \d+ to version \d+: file://", server.process.text())
        with server.connect() as client:
            log = client.table(LOG)
            wait_until(lambda: log.append([{"id": 23}]), what="the lake's answer", tolerate=(LakewardError,))
            tier_now(client, log)
            assert lake_ids(client, LOG) == list(range(24)), (
                "every row once: the copy's, those that only the lake has, the new one"
            )
            assert sorted(client.read(LOG).to_table().column("id").to_pylist()) == list(range(24))
            resync(client, {"id": 9, "state": "new"})
            assert lake_ids(client, PK) == [0, 1, 2, 3, 9], "what was newer in the lake is back in the hot store"
            certify(client, LOG, PK)
            assert app.run(["verify", LOG, "--server", server.url]) == 0
    finally:
        job.kill()
        server.kill()


def note(lake: IcebergLakeStorage, *values: str) -> list[Path]:
    """A commit for each value; the metadata files that they made."""
    found = []
    for value in values:
        table = lake.connection.load(TablePath.parse(LOG))
        with table.transaction() as change:
            change.set_properties(note=value)
        found.append(Path(lake.connection.load(TablePath.parse(LOG)).metadata_location.removeprefix("file://")))
    return found


@pytest.mark.soak
def test_two_histories_after_a_start_without_the_flag_are_refused_until_one_is_chosen(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(settings={"datalake.format": "iceberg"})
    server.client().create_table(LOG, "id BIGINT")
    server.stop()
    database, copy = server.data / "iceberg/catalog.db", tmp_path / "copy.db"
    options = {"type": "sql", "uri": f"sqlite:///{database}", "warehouse": f"file://{server.data}/warehouse"}
    shutil.copy(database, copy)
    lake = load(options)
    right = note(lake, "right", "too")
    lake.connection.close()
    shutil.copy(copy, database)
    lake = load(options)
    wrong = note(lake, "wrong", "too")
    lake.connection.close()
    shutil.copy(copy, database)
    server.arguments = ("--restored",)
    with pytest.raises(TimedOut) as refused:
        server.restart()
    for named in (right[-1].name, wrong[-1].name, LOG, "nothing was moved", "--restored"):
        assert named in str(refused.value)
    for file in wrong:
        file.rename(tmp_path / file.name)
    server.restart()
    assert f"moved from version 1 to version 3: file://{right[-1]}" in server.last_words()
    assert LOG in server.client().list_tables()


@pytest.mark.soak
def test_a_catalog_goes_forward_in_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_store() as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        options = folder_options(tmp_path, **{**store.options, "warehouse": store.new_bucket()})
        lake = load(options)
        log = LakeSuite().make_log(lake, properties={"iceberg.write.metadata.previous-versions-max": "1"})
        shutil.copy(tmp_path / "catalog.db", tmp_path / "copy.db")
        for number in range(5):
            log.append(B0, row(number))
            LakeRound.plan(lake, log).run()
        lake.connection.close()
        shutil.copy(tmp_path / "copy.db", tmp_path / "catalog.db")
        lake = load(options)
        with pytest.raises(LakeMetadataGone):
            lake.connection.load(log.table.path)
        move_forward(lake.connection)
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        lake.connection.close()
