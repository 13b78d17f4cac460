# SPDX-License-Identifier: Apache-2.0
"""Requests of a small round to a real server and its REST catalog, one by one, as a job sends them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeward.hot.embedded.plugin import EmbeddedPlugin
from lakeward.hot.embedded.remote.connection import FlightConnection
from lakeward.hot.embedded.remote.http import ServerConnection
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.lake.iceberg.plugin import load as load_iceberg
from lakeward.model import JobName, SideName, TableInfo
from lakeward.protocol import routes
from lakeward.protocol.flight import Act, ActionRequest, Ticket
from lakeward.spi import PluginCache
from lakeward.tiering.job.job import TieringJob
from lakeward.tiering.work.dispatch import DirectDispatcher
from lakeward.tiering.work.options import TieringOptions
from lakeward_testing.httpproxy import HttpProxy, ProxyAnswer, ProxyRequest
from tests.kit.serverprocess import ServerProcess
from tests.spark.processes import tier_now

PAGE = Path(__file__).parents[2] / "docs/round.md"


class Counter(HttpProxy):
    """Between a job and its server. Heartbeats that report nothing and are handed nothing are the job's clock, not the
    round's."""

    def __init__(self, target: str) -> None:
        self.calls: list[str] = []
        super().__init__(target)

    def treat(self, request: ProxyRequest) -> ProxyAnswer | None:
        answer = self.send(request)
        what = f"{request.method} {request.path.removeprefix('/api/v1')}"
        if what != "POST /heartbeat" or _is_of_a_round(request, answer):
            self.calls.append(what)
        return answer


def _is_of_a_round(request: ProxyRequest, answer: ProxyAnswer | None) -> bool:
    reported = json.loads(request.body)
    handed_out = answer is not None and json.loads(answer.body)["tables"]
    return bool(handed_out or reported["finished"] or reported["failed"])


class CountedFlight(FlightConnection):
    calls: list[str]

    def act(self, action: Act, request: ActionRequest) -> Any:
        self.calls.append(f"DoAction {action}")
        return super().act(action, request)

    def stream(self, ticket: Ticket) -> Iterator[tuple[pa.RecordBatch, bytes]]:
        self.calls.append(f"DoGet {ticket.kind}")
        return super().stream(ticket)


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


def drawn_calls() -> list[str]:
    """The requests to the server in the first diagram of docs/round.md."""
    diagram = PAGE.read_text().split("```mermaid", 1)[1].split("```", 1)[0]
    arrows = re.findall(r"^ *[DE]->>S: (.+)$", diagram, re.MULTILINE)
    return [arrow.split(" (")[0] for arrow in arrows]


def as_drawn(call: str) -> str:
    return call.replace("/namespaces/d/tables/small", "/namespaces/{database}/tables/{table}").replace(
        "d.small", "{path}"
    )


@contextmanager
def counted_job(server: ServerProcess, proxy: Counter) -> Iterator[TieringJob]:
    """Its requests, those of the lake's catalog too, pass the counter."""
    lakes, plugin = list[IcebergLakeStorage](), CountedPlugin(proxy)

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
        yield job
    finally:
        job.stop()
        running.join(120)
        for lake in lakes:
            lake.connection.close()
        plugin.store().close()
        plugin.server.close()
        proxy.close()


def test_a_small_round_sends_the_five_requests_that_the_page_draws(lake_server: ServerProcess) -> None:
    client, proxy = lake_server.client(), Counter(lake_server.url)
    with counted_job(lake_server, proxy) as job:
        table = client.create_table("d.small", "id BIGINT, name STRING", freshness="1 h")
        for number in range(3):
            table.append([{"id": number, "name": "x"}])
            proxy.calls.clear()
            tier_now(client, table)
            assert job.enumerator.wait_idle(120)
            job.enumerator.beat()  # reports the round's end, unless its commit did
            calls = list(proxy.calls)
        assert [as_drawn(call) for call in calls] == drawn_calls()
        assert len(calls) == 5
        (last,) = client.server.ask("GET", routes.ROUNDS, params={"table": str(table.path), "limit": 1})["rounds"]
        assert (last["outcome"], last["rows"], bool(last["snapshot_id"])) == ("done", 1, True)
        assert client.server.ask("GET", routes.TABLE_STATUS.format(table=table.path))["lake_rows"] == 3


class OlderServer(Counter):
    """From some moment on, a server that knows no leased commits: it takes JSON alone, and passes over the field."""

    is_older = False

    def treat(self, request: ProxyRequest) -> ProxyAnswer | None:
        kind = {name.lower(): value for name, value in request.headers.items()}.get("content-type")
        if self.is_older and kind == routes.LEASED_TYPE:
            self.calls.append("refused")
            return ProxyAnswer(415, {"Content-Type": "application/json"}, b'{"code": "not-json"}')
        return super().treat(request)


def test_a_server_that_is_replaced_by_an_older_one_gets_no_commit_without_a_lease_check(
    lake_server: ServerProcess,
) -> None:
    client, proxy = lake_server.client(), OlderServer(lake_server.url)
    with counted_job(lake_server, proxy):
        table = client.create_table("d.small", "id BIGINT", freshness="1 h")
        for number in range(3):
            proxy.is_older = number > 0
            proxy.calls.clear()
            table.append([{"id": number}])
            tier_now(client, table)
            calls = list(proxy.calls)
            assert calls.count("refused") == (1 if number == 1 else 0)
            checks = [call for call in calls if call.startswith("POST /rounds/") or "lease" in call]
            assert bool(checks) == (number > 0), calls
        assert sorted(client.read("d.small", mode="lake").to_table()["id"].to_pylist()) == [0, 1, 2]
