# SPDX-License-Identifier: Apache-2.0
"""A data folder that is moved with the lake in it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lakeward.errors import TimedOut
from tests.kit.advice import Served
from tests.kit.serverprocess import ServerProcess
from tests.spark.processes import Job, tier_now

OTHERS = ("paimon", "delta", "lance", "hudi")
StartServer = Callable[..., ServerProcess]


def move(server: ServerProcess, to: Path) -> None:
    client = server.client()
    client.create_table("shop.orders", "id BIGINT NOT NULL", primary_key="id", freshness="1 h").upsert([{"id": 1}])
    job = Job(Served(server.url, server.data.parent), "job", spark=False)
    tier_now(client, client.table("shop.orders"))
    job.kill()
    server.stop()
    server.data.rename(to)


def check(server: ServerProcess) -> None:
    client = server.client()
    table = client.table("shop.orders")
    job = Job(Served(server.url, server.data.parent), "job", spark=False)
    table.upsert([{"id": 2}])
    tier_now(client, table)
    job.kill()
    assert sorted(client.read("shop.orders", mode="lake").to_table()["id"].to_pylist()) == [1, 2]


def test_an_iceberg_lake_names_the_command_that_makes_it_whole(start_server: StartServer, tmp_path: Path) -> None:
    settings = {"datalake.format": "iceberg"}
    server = start_server("old/data", settings=settings)
    move(server, tmp_path / "new")
    (tmp_path / "old").rename(tmp_path / "older")
    with pytest.raises(TimedOut) as refused:
        start_server("new", settings=settings)
    told = str(refused.value)
    assert f"folder {tmp_path}/old/data was moved to {tmp_path}/new" in told
    (command,) = re.findall(r"new one: (.+)", told)
    subprocess.run(["sh", "-euc", command], check=True)
    check(start_server("new", settings=settings))


@pytest.mark.soak
@pytest.mark.parametrize("format_name", OTHERS)
def test_a_lake_of_another_format_moves_with_the_folder(
    start_server: StartServer, tmp_path: Path, format_name: str
) -> None:
    settings = {"datalake.format": format_name}
    server = start_server("old", settings=settings)
    move(server, tmp_path / "new")
    check(start_server("new", settings=settings))
