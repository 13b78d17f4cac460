# SPDX-License-Identifier: Apache-2.0
"""Ten thousand tables of a tenant: each is created, all are answered for, another tenant works as before."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

import httpx
import psutil
import pytest

from lakeward.cli import app
from lakeward.errors import QuotaExceeded
from lakeward.protocol.routes import STATUS, TABLES
from tests.kit.serverprocess import ServerProcess

pytestmark = pytest.mark.soak

COUNT = 10_000
LIMITS = {"server.quota.tables": str(COUNT)}
TENANT, OTHER, ADMIN = "tenant-" + "t" * 32, "other-" + "o" * 32, "admin-" + "a" * 32
TOKENS = [f"tenant:admin:{TENANT}:many.*", f"other:admin:{OTHER}:shop.*", f"root:admin:{ADMIN}"]


@pytest.mark.parametrize("settings", [{}, {"datalake.format": "iceberg"}], ids=["no lake", "lake"])
def test_ten_thousand_tables(
    tmp_path: Path, settings: Mapping[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEWARD_TOKEN", ADMIN)
    (tmp_path / "tokens").write_text("\n".join(TOKENS))
    server = ServerProcess(
        tmp_path / "data", settings={**settings, **LIMITS, "server.token-file": str(tmp_path / "tokens")}
    )
    try:
        server.start()
        tenant = server.client(token=TENANT)
        began = time.monotonic()
        for number in range(COUNT):
            tenant.create_table(f"many.t{number}", "id BIGINT NOT NULL, v STRING")
            if number % 1000 == 999:
                _print(f"{number + 1} tables", began, server, capsys)
        with pytest.raises(QuotaExceeded, match=f"{COUNT}"):
            tenant.create_table("many.another", "id BIGINT")
        for number in range(0, COUNT, 1000):
            tenant.table(f"many.t{number}").append([{"id": number, "v": "x"}])
        _check(server, capsys)
        assert server.stop() == 0
        began = time.monotonic()
        server.restart()
        _print("started again", began, server, capsys)
        _check(server, capsys)
    finally:
        server.close()


def _check(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(0, COUNT, 1000):
        rows = server.client(token=TENANT).read(f"many.t{number}").to_table().to_pylist()
        assert rows == [{"id": number, "v": "x"}]
    shop = server.client(token=OTHER)
    if not shop.list_tables():
        shop.create_table("shop.orders", "id BIGINT NOT NULL")
    shop.table("shop.orders").append([{"id": 1}])
    assert shop.list_tables() == ["shop.orders"]
    with httpx.Client(base_url=server.url, timeout=120, headers={"Authorization": f"Bearer {ADMIN}"}) as client:
        for path in (TABLES, STATUS, "/api/v1/dashboard", "/api/v1/maintenance", "/metrics"):
            began = time.monotonic()
            answered = client.get(path)
            assert answered.status_code == 200, (path, answered.text[:500])
            _print(f"GET {path}, {len(answered.content):,} bytes", began, server, capsys)
        tables = client.get(TABLES).json()["tables"]
        assert len(tables) == COUNT + 1
    began = time.monotonic()
    code = app.run(["doctor", "--json", "--server", server.url])
    findings = json.loads(capsys.readouterr().out)["findings"]
    _print(f"doctor: exit {code}, {len(findings)} findings", began, server, capsys)


def _print(what: str, began: float, server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    """For people: no figure here is a promise."""
    memory = psutil.Process(server.pid).memory_info().rss >> 20
    with capsys.disabled():
        print(f"{what}: {time.monotonic() - began:.1f} s, server {memory} MB", flush=True)
