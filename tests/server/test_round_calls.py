# SPDX-License-Identifier: Apache-2.0
"""What a small round asks of a real server and of its REST catalog, call by call, as a job runs it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lakeward.hot.embedded.plugin import EmbeddedPlugin
from lakeward.hot.embedded.remote.connection import FlightConnection
from lakeward.hot.embedded.remote.http import ServerConnection
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.lake.iceberg.plugin import load as load_iceberg
from lakeward.model import JobName, SideName, TableInfo
from lakeward.protocol.flight import Act, ActionRequest
from lakeward.spi import PluginCache
from lakeward.tiering.job.dispatch import DirectDispatcher
from lakeward.tiering.job.job import TieringJob
from lakeward.tiering.job.options import TieringOptions
from lakeward_testing.httpproxy import HttpProxy, ProxyAnswer, ProxyRequest
from tests.kit.serverprocess import ServerProcess
from tests.spark.processes import tier_now


class Counter(HttpProxy):
    """Between a job and its server. Beats that tell nothing are the job's clock, not the round's."""

    def __init__(self, target: str) -> None:
        self.calls: list[str] = []
        super().__init__(target)

    def treat(self, request: ProxyRequest) -> ProxyAnswer | None:
        what = f"{request.method} {request.path.removeprefix('/api/v1')}"
        if what != "POST /heartbeat" or any(json.loads(request.body)[told] for told in ("finished", "failed")):
            self.calls.append(what)
        return self.send(request)


class CountedFlight(FlightConnection):
    calls: list[str]

    def act(self, action: Act, request: ActionRequest) -> Any:
        self.calls.append(f"action {action}")
        return super().act(action, request)


class CountedPlugin(EmbeddedPlugin):
    """The lake's catalog is reached through the same counter."""

    def __init__(self, proxy: Counter) -> None:
        super().__init__({"server": proxy.url}, ServerConnection(proxy.url))
        self._proxy = proxy
        counted = CountedFlight(self.server, retry_s=60.0)
        counted.calls = proxy.calls
        self._store.connection = counted

    def lake_options(self, table: TableInfo, side: SideName | None = None) -> tuple[str, Mapping[str, str]]:
        name, options = super().lake_options(table, side)
        return name, {**options, "uri": f"{self._proxy.url}/iceberg"}


@pytest.fixture
def lake_server(tmp_path: Path) -> Iterator[ServerProcess]:
    made = ServerProcess(tmp_path / "data", settings={"datalake.format": "iceberg"}).start()
    yield made
    made.close()


def start_thread(target: Callable[[], None], name: str) -> None:
    threading.Thread(target=target, name=name, daemon=True).start()


def test_a_small_round_asks_the_server_four_times_and_loads_its_lake_table_twice(lake_server: ServerProcess) -> None:
    client, proxy, lakes = lake_server.client(), Counter(lake_server.url), list[IcebergLakeStorage]()
    plugin = CountedPlugin(proxy)

    def open_lake(_name: str, lake_options: Mapping[str, str]) -> IcebergLakeStorage:
        lakes.append(load_iceberg(lake_options))
        return lakes[-1]

    plugins = PluginCache(open_hot=lambda _name, _options: plugin, open_lake=open_lake)
    options = TieringOptions(heartbeat_s=0.1, slots=2)
    job = TieringJob(
        options, plugin, plugins, DirectDispatcher(plugins), name=JobName("counted"), start_thread=start_thread
    )
    running = threading.Thread(target=job.run, daemon=True)
    running.start()
    try:
        table = client.create_table("d.small", "id BIGINT, name STRING", freshness="1 h")
        for number in range(3):
            table.append([{"id": number, "name": "x"}])
            proxy.calls.clear()
            tier_now(client, table)
            assert job.enumerator.wait_idle(120)
            job.enumerator.beat()  # what the round's end left to tell, if anything
            calls = list(proxy.calls)
        loads = [call for call in calls if call.startswith("GET /iceberg") and call.endswith("/tables/small")]
        asked = [call for call in calls if "/iceberg" not in call]
        assert len(loads) == 2, calls
        assert len(asked) == 4, calls
    finally:
        job.stop()
        running.join(120)
        for lake in lakes:
            lake.connection.close()
        plugin.store().close()
        plugin.server.close()
        proxy.close()
