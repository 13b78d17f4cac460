# SPDX-License-Identifier: Apache-2.0
"""Sends the figures of `/metrics` to an OpenTelemetry collector. A collector that is away costs its figures alone."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from lakeward.errors import InvalidConfig
from lakeward.model import BackgroundThread

log = logging.getLogger(__name__)
EVERY_S, LIMIT_S = 10.0, 5.0


class MetricsExport:
    """Over HTTP, with the names and labels that Prometheus sees."""

    def __init__(self, endpoint: str, collector: Collector) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.sdk.resources import Resource
        except ImportError as error:
            reason = "figures over OTLP need a further package: pip install 'lakeward[otel]'"
            raise InvalidConfig(where="server.otlp-endpoint", reason=reason) from error
        self._collector, self._start_ns = collector, time.time_ns()
        self._exporter = OTLPMetricExporter(f"{endpoint.rstrip('/')}/v1/metrics", timeout=LIMIT_S)
        self._resource = Resource.create({"service.name": "lakeward-server"})
        self.thread = BackgroundThread("otlp metrics", self.send, EVERY_S)

    def stop(self) -> None:
        """Gives up what is under way. Safe to repeat."""
        self._exporter.shutdown()
        self.thread.stop(LIMIT_S)

    def send(self) -> None:
        from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, ResourceMetrics, ScopeMetrics
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        scoped = ScopeMetrics(InstrumentationScope("lakeward"), list(self._metrics()), "")
        data = MetricsData([ResourceMetrics(self._resource, [scoped], "")])
        if self._exporter.export(data, timeout_millis=LIMIT_S * 1000) is not MetricExportResult.SUCCESS:
            log.debug("the collector did not take the server's figures")

    def _metrics(self) -> Iterator[Any]:
        from opentelemetry.sdk.metrics import export

        now_ns = time.time_ns()

        def points(family: Metric) -> list[export.NumberDataPoint]:
            return [
                export.NumberDataPoint(dict(s.labels), self._start_ns, now_ns, s.value)
                for s in family.samples
                if not s.name.endswith("_created")
            ]

        for family in self._collector.collect():
            data: export.Sum | export.Gauge = export.Gauge(points(family))
            if family.type == "counter":
                data = export.Sum(points(family), export.AggregationTemporality.CUMULATIVE, is_monotonic=True)
            yield export.Metric(family.name, family.documentation, "", data)
