# SPDX-License-Identifier: Apache-2.0
"""A real server on a real disk without a free byte: reads and what keeps state go on; all else says disk-full."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from lakeward.client import Client
from lakeward.client.options import ClientOptions
from lakeward.errors import DiskFull, TimedOut
from lakeward.protocol.routes import API
from tests.kit.serverprocess import ServerProcess

SETTINGS = {
    "server.disk.reserve": "32mb",
    "datalake.format": "iceberg",
}
SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "n", "required": False, "type": "long"}]}
COLUMNS = "id BIGINT NOT NULL, name STRING"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    target = tmp_path / "disk"
    target.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(target)], capture_output=True)
    if made.returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield target
    subprocess.run(["umount", str(target)], check=True)


@pytest.fixture
def server(disk: Path) -> Iterator[ServerProcess]:
    """Its log and its ready file lie beside the data folder: on another disk."""
    (disk / "data").mkdir()
    data = disk.parent / "data"
    data.symlink_to(disk / "data")
    server = ServerProcess(data, settings=SETTINGS)
    yield server
    server.close()


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "filler").open("ab", buffering=0) as file:
        for size in (1 << 20, 4096):
            with suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass


def ask(server: ServerProcess, method: str, path: str, body: Any = None) -> httpx.Response:
    headers = {"content-type": "application/json"}
    return httpx.request(method, f"{server.url}{path}", json=body, headers=headers, timeout=120)


def changes(server: ServerProcess) -> dict[str, httpx.Response]:
    """Calls that must go on, or say why not."""
    name = f"n{uuid.uuid4().hex}"
    return {
        "read plan": ask(server, "POST", f"{API}/tables/d.log/read-plan"),
        "pause": ask(server, "POST", f"{API}/tables/d.log/pause", {"reason": "no room"}),
        "resume": ask(server, "POST", f"{API}/tables/d.log/resume", {}),
        "heartbeat": ask(server, "POST", f"{API}/heartbeat", {"job": "j", "instance": "i", "slots": 1}),
        "namespace": ask(server, "POST", "/iceberg/v1/namespaces", {"namespace": [name]}),
        "lake table": ask(server, "POST", "/iceberg/v1/namespaces/d/tables", {"name": name, "schema": SCHEMA}),
    }


def test_reads_and_state_go_on_and_the_rest_says_disk_full(disk: Path, server: ServerProcess) -> None:
    server.start()
    client = Client(server.url, options=ClientOptions(retry_s=1.0))
    server.clients.append(client)
    log, keyed = client.create_table("d.log", COLUMNS), client.create_table("d.keyed", COLUMNS, primary_key="id")
    rows = pa.table({"id": [1, 2], "name": ["a", "b"]})
    log.append(rows)
    keyed.upsert(rows)
    fill(disk)
    with pytest.raises(DiskFull, match="free some space"):
        log.append(pa.table({"id": [3], "name": ["x" * (3 << 20)]}))
    for what, answer in changes(server).items():
        assert answer.status_code in (200, 204), (what, answer.text)
    for path in ("/status", "/rounds", "/tables/d.log"):
        assert ask(server, "GET", f"{API}{path}").status_code == 200
    for table in (log, keyed):
        assert len(table.read().to_table()) == 2
    assert keyed.lookup([{"id": 1}]).column("name").to_pylist() == ["a"]

    server.kill()
    server.restart()
    assert len(log.read().to_table()) == len(keyed.read().to_table()) == 2

    full: set[str] = set()
    for _ in range(60):
        if full >= {"heartbeat", "namespace", "lake table"}:
            break
        fill(disk)
        for what, answer in changes(server).items():
            assert answer.status_code in (200, 204, 503, 507), (what, answer.text)
            if answer.status_code >= 500:
                full.add(what)
                assert "free some space" in answer.text, answer.text
                assert answer.status_code == 503 or (answer.json()["code"], answer.json()["retryable"]) == (
                    "disk-full",
                    True,
                )
    assert full >= {"heartbeat", "namespace", "lake table"}, "the space that was kept has been used up"
    assert ask(server, "GET", f"{API}/status").status_code == 200

    (disk / "filler").unlink()
    for what, answer in changes(server).items():
        assert answer.status_code in (200, 204), (what, answer.text)
    log.append(rows)


def test_a_start_on_a_full_disk_says_what_to_do(disk: Path, server: ServerProcess) -> None:
    fill(disk)
    with pytest.raises(TimedOut) as told:
        server.start()
    assert "free some space" in str(told.value)
