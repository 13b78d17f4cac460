# SPDX-License-Identifier: Apache-2.0
"""Exports each round: a trace and counters over OTLP, an OpenLineage event. Both are off by default, and neither can
fail or delay a round."""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from lakeward.errors import InvalidConfig
from lakeward.model import TablePath
from lakeward.protocol.heartbeat import TableFinished
from lakeward.spi import HotStore
from lakeward.tiering.work.options import TieringOptions
from lakeward.tiering.work.runner import LeasedWork, RoundEnd

log = logging.getLogger("lakeward.tiering")

PHASES = (
    ("hand-out", "wait_s"),
    ("plan", "plan_s"),
    ("tasks", "write_s"),
    ("resolve", "resolve_s"),
    ("commit", "commit_s"),
)
"""Children of a round's span, in order. The report to the coordinator is what is left of the round's time."""

_MOST_WAITING, _LIMIT_S = 1_000, 5.0
_PRODUCER = "https://github.com/lakeward/lakeward"
_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_COLUMNS = "https://openlineage.io/spec/facets/1-1-1/SchemaDatasetFacet.json#/$defs/SchemaDatasetFacet"

Sink = Callable[[LeasedWork, RoundEnd, float, float], None]
"""Gets the work, its end, and when it began and ended, in seconds since 1970."""


class RoundObserver:
    """Hands ends to the sinks in a thread of its own. If they are slow, the oldest wait and the newest are dropped."""

    def __init__(self, sinks: Mapping[str, Sink]) -> None:
        self._sinks, self._failing = dict(sinks), set[str]()
        self._ends: queue.Queue[tuple[LeasedWork, RoundEnd, float, float] | None] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._run, name="lakeward-observe", daemon=True)
        if self._sinks:
            self._thread.start()

    @classmethod
    def of(cls, options: TieringOptions, store: HotStore) -> RoundObserver:
        """Raises `InvalidConfig` where OpenTelemetry is asked for and is not installed."""
        sinks: dict[str, Sink] = {}
        if options.otlp_endpoint is not None:
            sinks["OTLP"] = RoundTraces(options.otlp_endpoint).note
        if options.openlineage_url is not None:
            sinks["OpenLineage"] = LineageEvents(options.openlineage_url, options.server, store).note
        return cls(sinks)

    def note(self, work: LeasedWork, end: RoundEnd, began_s: float) -> None:
        if self._sinks:
            try:
                self._ends.put_nowait((work, end, began_s, time.time()))
            except queue.Full:
                log.debug("a round's trace is dropped: the collector is slow")

    def close(self, limit_s: float = _LIMIT_S) -> None:
        """Waits for what is under way. Safe to repeat."""
        if self._thread.is_alive():
            self._ends.put(None)
            self._thread.join(limit_s)

    def _run(self) -> None:
        while (item := self._ends.get()) is not None:
            for name, sink in self._sinks.items():
                try:
                    sink(*item)
                    self._failing.discard(name)
                except Exception as error:  # noqa: BLE001 - monitoring must not end the thread
                    if name not in self._failing:
                        log.warning("%s does not take rounds, they go on without it: %s", name, error)
                    self._failing.add(name)


class RoundTraces:
    """One trace for each round, with its phases as spans, and counters of rounds and rows."""

    def __init__(self, endpoint: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        except ImportError as error:
            reason = "traces need a further package: pip install 'lakeward[otel]'"
            raise InvalidConfig(where="tiering.otlp-endpoint", reason=reason) from error
        base, resource = endpoint.rstrip("/"), Resource.create({"service.name": "lakeward-tiering"})
        traces = TracerProvider(resource=resource)
        traces.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{base}/v1/traces", timeout=_LIMIT_S)))
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{base}/v1/metrics", timeout=_LIMIT_S), 10_000)
        meter = MeterProvider(resource=resource, metric_readers=[reader]).get_meter("lakeward")
        self._tracer = traces.get_tracer("lakeward")
        self._rounds = meter.create_counter("lakeward.rounds", description="Rounds that ended, by outcome.")
        self._rows = meter.create_counter("lakeward.rows", description="Rows that rounds wrote.")

    def note(self, work: LeasedWork, end: RoundEnd, began_s: float, ended_s: float) -> None:
        from opentelemetry.trace import StatusCode, set_span_in_context

        facts = {
            "lakeward.table": str(work.handed.path),
            "lakeward.side": str(work.handed.side),
            "lakeward.kind": str(work.handed.kind),
        }
        root = self._tracer.start_span(
            f"round {work.handed.path}", start_time=_ns(began_s), attributes={**facts, "lakeward.round": work.round_id}
        )
        result = end.result if isinstance(end, TableFinished) else None
        at, context = began_s, set_span_in_context(root)
        for name, key in PHASES if result is not None else ():
            assert result is not None
            after = at + getattr(result.phases, key)
            self._tracer.start_span(name, context, start_time=_ns(at)).end(_ns(after))
            at = after
        if result is not None and ended_s > at:
            self._tracer.start_span("report", context, start_time=_ns(at)).end(_ns(ended_s))
            root.set_attributes({"lakeward.rows": result.rows, "lakeward.snapshot": result.snapshot_id or ""})
            self._rows.add(result.rows, facts)
        if not isinstance(end, TableFinished):
            root.set_status(StatusCode.ERROR, str(end.error.get("message", ""))[:500])
        root.end(_ns(max(at, ended_s)))
        self._rounds.add(1, {**facts, "lakeward.outcome": outcome(end)})


class LineageEvents:
    """A COMPLETE or FAIL event for each round: the hot table as input, the lake table as output with its row count,
    both with their columns."""

    def __init__(self, url: str, server: str, store: HotStore) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidConfig(where="tiering.openlineage-url", reason=f"{url!r} is not an http address")
        self._url, self._server, self._store = url, server, store

    def note(self, work: LeasedWork, end: RoundEnd, began_s: float, ended_s: float) -> None:
        body = json.dumps(self.event(work, end, began_s, ended_s)).encode()
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})  # noqa: S310 - checked above
        with urllib.request.urlopen(request, timeout=_LIMIT_S):  # noqa: S310
            pass

    def event(self, work: LeasedWork, end: RoundEnd, began_s: float, ended_s: float) -> dict[str, Any]:
        result = end.result if isinstance(end, TableFinished) else None
        name = str(work.handed.path)
        facet = {"_producer": _PRODUCER, "_schemaURL": f"{_SCHEMA}Facet"}
        written = (
            {"outputStatistics": {**facet, "rowCount": result.rows, "size": result.bytes_written}} if result else {}
        )
        columns = {"schema": self._columns(work.handed.path)}
        return {
            "eventType": "COMPLETE" if isinstance(end, TableFinished) else "FAIL",
            "eventTime": datetime.fromtimestamp(ended_s, UTC).isoformat(),
            "producer": _PRODUCER,
            "schemaURL": _SCHEMA,
            "run": {"runId": str(uuid.uuid5(uuid.NAMESPACE_URL, work.round_id)), "facets": {}},
            "job": {"namespace": self._server, "name": f"{work.handed.kind}.{name}", "facets": {}},
            "inputs": [{"namespace": self._server, "name": name, "facets": columns}],
            "outputs": [
                {"namespace": f"{self._server}/lake", "name": name, "facets": columns, "outputFacets": written}
            ],
        }

    def _columns(self, path: TablePath) -> dict[str, Any]:
        """Today's columns, as a facet."""
        columns = self._store.load_table(path).schema.columns
        fields = [{"name": c.name, "type": str(c.type), "description": c.comment or ""} for c in columns]
        return {"_producer": _PRODUCER, "_schemaURL": _COLUMNS, "fields": fields}


def outcome(end: RoundEnd) -> str:
    if isinstance(end, TableFinished):
        return "finished" if end.result is not None else "empty"
    return "given-back" if end.given_back else "failed"


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
