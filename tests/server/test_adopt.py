# SPDX-License-Identifier: Apache-2.0
"""`lakeward table adopt --foreign --key` against real servers: killed while rows are loaded, the command killed, what
others are told meanwhile, and a backup afterwards.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from lakeward.cli import app
from lakeward.errors import TableLoading
from lakeward_testing.waiting import wait_until
from lakeward_testing.warmprocess import start_module
from tests.kit.serverprocess import ServerProcess
from tests.server.conftest import StartServer

ADOPT = ["table", "adopt", "--foreign", "theirs.orders", "--key", "id", "--buckets", "2"]
FILES, ROWS = 5, 40


def lake(tmp_path: Path) -> dict[str, str]:
    return {"datalake.format": "iceberg", "datalake.iceberg.warehouse": f"file://{tmp_path}/warehouse"}


def make_table(server: ServerProcess) -> None:
    catalog = RestCatalog("theirs", uri=f"{server.url}/iceberg")
    catalog.create_namespace_if_not_exists("theirs")
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    table = catalog.create_table("theirs.orders", schema)
    for at in range(FILES):
        ids = range(at * ROWS, (at + 1) * ROWS)
        table.append(pa.table({"id": pa.array(ids, pa.int64()), "v": [f"old{i}" for i in ids]}, schema=schema))
    catalog.close()


def found(server: ServerProcess) -> dict[int, Any]:
    with server.client() as client:
        return {r["id"]: r["v"] for r in client.read("theirs.orders").to_table().to_pylist()}


def test_a_server_that_was_killed_meanwhile_goes_on(
    start_server: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start_server(settings=lake(tmp_path), environment={"LAKEWARD_FAULTS": "load.put=kill,hit=3"})
    make_table(server)
    assert app.run([*ADOPT, "--server", server.url]) != 0
    server.kill()
    server.environment = {}
    server.start()
    capsys.readouterr()
    assert app.run([*ADOPT, "--server", server.url]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out == "adopted theirs.orders\n"
    with server.client() as client:
        orders = client.table("theirs.orders")
        orders.upsert([{"id": 7, "v": "new7"}])
        orders.delete([{"id": 8}])
        assert orders.lookup([{"id": 9}]).to_pylist()[0]["v"] == "old9"
    expected = {n: f"old{n}" for n in range(FILES * ROWS)} | {7: "new7"}
    del expected[8]
    assert found(server) == expected
    assert app.run(["verify", "theirs.orders", "--deep", "--server", server.url]) == 0, capsys.readouterr().out


def test_others_are_told_meanwhile_and_the_command_may_go(
    start_server: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pause = tmp_path / "pause"
    faults = f"load.put=pause,hit=3,file={pause}"
    server = start_server(settings=lake(tmp_path), environment={"LAKEWARD_FAULTS": faults})
    make_table(server)
    command = start_module("lakeward.cli", [*ADOPT, "--server", server.url], tmp_path / "command.log", {})
    wait_until(Path(f"{pause}.reached").exists, what="a load under way")
    with server.client() as client, pytest.raises(TableLoading, match=r"is being adopted, .* of 200 rows are loaded"):
        client.table("theirs.orders").upsert([{"id": 1, "v": "x"}])
    catalog = RestCatalog("theirs", uri=f"{server.url}/iceberg")
    assert catalog.load_table("theirs.orders").scan().to_arrow().num_rows == FILES * ROWS, "other engines go on"
    catalog.close()
    app.run(["status", "--server", server.url])
    assert "being adopted: theirs.orders: " in capsys.readouterr().err
    wait_until(lambda: "rows loaded" in (tmp_path / "command.log").read_text(), what="progress of the command")
    os.kill(command.pid, signal.SIGKILL)
    command.wait()
    assert "expire 30 minutes after the next one" in (tmp_path / "command.log").read_text()
    Path(f"{pause}.release").touch()
    wait_until(lambda: app.run([*ADOPT, "--server", server.url]) == 0, what="the table")
    with server.client() as client:
        client.table("theirs.orders").upsert([{"id": 3, "v": "new3"}])
    expected = found(server)
    saved, back = str(tmp_path / "saved"), tmp_path / "back"
    assert app.run(["backup", "create", saved, "--server", server.url]) == 0, capsys.readouterr().err
    server.stop()
    assert app.run(["backup", "restore", saved, "--data", str(back)]) == 0, capsys.readouterr().err
    again = start_server("back", settings=lake(tmp_path), arguments=["--restored"])
    assert found(again) == expected
    with again.client() as client:
        client.table("theirs.orders").delete([{"id": 3}])
    assert found(again).keys() == expected.keys() - {3}
