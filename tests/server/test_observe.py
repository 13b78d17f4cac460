# SPDX-License-Identifier: Apache-2.0
"""Traces over OTLP and OpenLineage events of real rounds, at a collector on loopback; and one that is away."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakeward_testing.ports import free_port
from lakeward_testing.waiting import wait_until
from tests.spark.processes import Job, Server, tier_now


class Collector:
    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        bodies = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def spans(self) -> list[Any]:
        requests = [ExportTraceServiceRequest.FromString(body) for path, body in self.bodies if path == "/v1/traces"]
        return [s for r in requests for each in r.resource_spans for scope in each.scope_spans for s in scope.spans]

    def metrics(self) -> dict[str, Any]:
        requests = [ExportMetricsServiceRequest.FromString(body) for path, body in self.bodies if path == "/v1/metrics"]
        servers = [each for r in requests for each in r.resource_metrics if "lakeward-server" in str(each.resource)]
        return {m.name: m for each in servers for scope in each.scope_metrics for m in scope.metrics}

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body) for path, body in self.bodies if path == "/lineage"]


@pytest.fixture
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.http.shutdown()
    running.http.server_close()


def run_round(tmp_path: Path, otlp: str, lineage: str, until: Callable[[], bool]) -> str:
    """One round of three rows; the job's log after its end."""
    with ExitStack() as stack:
        server = Server(tmp_path / "server")
        stack.callback(server.stop)
        observed = {"LAKEWARD_TIERING__OTLP_ENDPOINT": otlp, "LAKEWARD_TIERING__OPENLINEAGE_URL": lineage}
        job = Job(server, "observed", spark=False, settings=observed)
        stack.callback(job.kill)
        client = stack.enter_context(server.connect())
        table = client.create_table("d.t", "id BIGINT", freshness="1 h")
        table.append([{"id": n} for n in range(3)])
        tier_now(client, table)
        wait_until(until, what="what the round is exported to")
        return job.text()


def test_a_round_is_one_trace_and_one_lineage_event(tmp_path: Path, collector: Collector) -> None:
    def is_exported() -> bool:
        has_event = any(e["outputs"][0]["outputFacets"] for e in collector.events())
        return has_event and any(s.name == "round d.t" for s in collector.spans())

    run_round(tmp_path, collector.url, f"{collector.url}/lineage", is_exported)
    root = next(s for s in collector.spans() if s.name == "round d.t")
    children = [s for s in collector.spans() if s.parent_span_id == root.span_id]
    assert {s.trace_id for s in children} == {root.trace_id}
    assert [s.name for s in children][:5] == ["hand-out", "plan", "tasks", "resolve", "commit"]
    assert all(s.start_time_unix_nano <= s.end_time_unix_nano for s in [root, *children])
    event = next(e for e in collector.events() if e["outputs"][0]["outputFacets"])
    assert event["eventType"] == "COMPLETE"
    assert event["inputs"][0]["name"] == "d.t"
    assert event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 3
    for side in (*event["inputs"], *event["outputs"]):
        assert [(f["name"], f["type"]) for f in side["facets"]["schema"]["fields"]] == [("id", "BIGINT")]


def test_rounds_go_on_without_a_collector(tmp_path: Path) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    assert "Traceback" not in run_round(tmp_path, nowhere, nowhere, lambda: True)


def test_the_servers_figures_reach_a_collector(tmp_path: Path, collector: Collector) -> None:
    """With the names of `/metrics`. A server without one starts and serves, and a collector that is away is no harm."""
    for name, endpoint in (("there", collector.url), ("away", f"http://127.0.0.1:{free_port()}")):
        server = Server(tmp_path / name, {"server.otlp-endpoint": endpoint})
        try:
            with server.connect() as client:
                client.create_table("d.t", "id BIGINT", freshness="1 h")
            if endpoint == collector.url:
                wait_until(lambda: "lakeward_slots" in collector.metrics(), what="the figures of the server")
        finally:
            server.stop()
        assert "Traceback" not in (server.folder / "server.log").read_text()
    figures = collector.metrics()
    assert figures["lakeward_slots"].WhichOneof("data") == "gauge"
    assert figures["lakeward_orphan_files_removed"].sum.is_monotonic
