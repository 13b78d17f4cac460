# SPDX-License-Identifier: Apache-2.0
"""The configuration of a server whose tables are in a lake: a second lake beside it, and a start without it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakeward.cli import app
from lakeward.errors import TimedOut
from lakeward_testing.waiting import wait_until
from tests.kit.serverprocess import ServerProcess

PAGE = Path(__file__).parents[2] / "docs/formats/several.md"
FORMATS = ["iceberg", *(pytest.param(n, marks=pytest.mark.soak) for n in ("paimon", "delta", "lance", "hudi"))]
StartServer = Callable[..., ServerProcess]


def example(heading: str) -> dict[str, Any]:
    """The first configuration below a heading of the page."""
    found = re.search(rf"^## {heading}$.*?^```toml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None, heading
    return tomllib.loads(found[1])


def settings_of(body: dict[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in body.items():
        name = f"{prefix}{key}"
        found |= settings_of(value, f"{name}.") if isinstance(value, dict) else {name: str(value)}
    return found


def test_the_page_leads_from_one_lake_to_two(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(settings={"datalake.format": "iceberg"})
    client = server.client()
    client.create_table("shop.orders", "id BIGINT")
    server.stop()
    server.settings = {**settings_of(example("From one lake to two")), "lakes.finance.warehouse": f"{tmp_path}/finance"}
    server.restart()
    client.create_table("shop.bills", "id BIGINT", properties={"table.datalake.lakes": "finance"})
    client.alter_table("shop.orders", properties={"table.datalake.lakes": "default, finance"})
    status = client.server.ask("GET", "/api/v1/status")["tables"]
    assert [(t["path"], t["side"], t["state"]) for t in status] == [
        ("shop.bills", "finance", "scheduled"),
        ("shop.orders", "default", "scheduled"),
        ("shop.orders", "finance", "scheduled"),
    ]


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_start_without_a_lake_that_tables_are_in_is_refused(start_server: StartServer, format_name: str) -> None:
    server = start_server(settings={"datalake.format": format_name})
    client = server.client()
    for name in ("orders", "clicks"):
        client.create_table(f"shop.{name}", "id BIGINT")
    client.create_table("shop.hot", "id BIGINT", lake=False)
    server.stop()
    before = server.settings
    for configured in ({}, {"lakes.main.format": format_name}):
        server.settings = configured
        with pytest.raises(TimedOut) as refused:
            server.restart()
        told = str(refused.value)
        assert "tables shop.clicks, shop.orders are in lake default" in told
        assert f'lakeward.toml needs: datalake.format = "{format_name}"' in told
    server.settings = {"datalake.enabled": "false"}
    server.restart()
    server.stop()
    server.settings = before
    server.restart()
    states = {t["path"]: t["state"] for t in client.server.ask("GET", "/api/v1/status")["tables"]}
    assert states == {"shop.orders": "scheduled", "shop.clicks": "scheduled", "shop.hot": "disabled"}


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_table_whose_lake_is_switched_off_is_never_called_well(
    start_server: StartServer, format_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start_server(settings={"datalake.format": format_name})
    client = server.client()
    client.create_table("shop.orders", "id BIGINT", freshness="1 s").append([{"id": 1}])
    client.create_table("shop.hot", "id BIGINT", lake=False).append([{"id": 1}])
    server.stop()
    server.settings = {"datalake.enabled": "false"}
    server.restart()

    def run(*arguments: str) -> tuple[int, str]:
        code = app.run([*arguments, "--server", server.url])
        return code, capsys.readouterr().out

    def late() -> list[str]:
        code, shown = run("status")
        assert code == 1
        orders, reason = [line for line in shown.splitlines() if "shop.orders" in line]
        assert "datalake.enabled = false" in reason
        return [orders] if " !" in orders else []

    wait_until(late, what="the table to be late, as nothing of it is in the lake")
    code, shown = run("doctor")
    assert code == 1
    assert "datalake.enabled = false" in shown
    code, shown = run("verify", "shop.orders")
    assert (code, shown.partition(":")[0]) == (6, "shop.orders")
    assert "NOT CHECKED" in shown
    code, shown = run("verify")
    assert code == 6
    assert "shop.hot" not in shown, "it was made for the hot store alone"
    tiles = client.server.ask("GET", "/api/v1/dashboard")["tiles"]
    assert [t["key"] for t in tiles if not t["ok"]][:1] == ["rounds"]
