# SPDX-License-Identifier: Apache-2.0
"""The server's figures for Prometheus: Fluss's metrics under their names in snake case, and ours beside them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lakeward.server.services import Services

SERVER_FIGURES = {
    "pendingTablesCount": "Tables that are due and wait for a slot. Fluss: pendingTablesCount.",
    "runningTablesCount": "Tables whose round runs. Fluss: runningTablesCount.",
    "lakeTableCount": "Tables with the lake enabled. Fluss: lakeTableCount.",
    "quarantinedTablesCount": "Tables whose rounds stopped after too many failures.",
    "jobsLive": "Tiering jobs that beat within their lease.",
    "jobsExpected": "Tiering jobs named in jobs.expected.",
    "slots": "Rounds that live jobs can run at once.",
    "orphanBytesReclaimed": "Bytes freed by orphan removal since start.",
    "orphanFilesRemoved": "Files removed by orphan removal since start.",
    "expiredBytesReclaimed": "Bytes freed by snapshot expiry since start.",
}
TABLE_FIGURES = {
    "tierLag": "Milliseconds since the last accepted finish. Fluss: tierLag.",
    "tierDuration": "Milliseconds of the last round; -1 before the first. Fluss: tierDuration.",
    "pendingTime": "Milliseconds the table has been waiting for a slot. Fluss: pendingTime.",
    "failuresTotal": "Rounds that failed. Fluss: failuresTotal.",
    "fileSize": "Bytes of the lake table; -1 unknown. Fluss: fileSize.",
    "recordCount": "Rows of the lake table; -1 unknown. Fluss: recordCount.",
    "fileCount": "Data files of the lake table; -1 unknown.",
    "deleteFileCount": "Delete files of the lake table; -1 unknown.",
    "snapshotCount": "Snapshots the lake table keeps; -1 unknown.",
    "freshness": "Milliseconds a row may wait at most. Fluss: freshness.",
    "lag": "Milliseconds the oldest waiting row has waited.",
    "waitingRows": "Rows the lake does not have yet.",
    "waitingBytes": "Bytes the lake does not have yet.",
    "deadlineMisses": "Rounds that landed after their deadline.",
    "slack": "Milliseconds a round may still wait before it must start; -1 when nothing waits.",
}
COUNTERS = frozenset({"failuresTotal", "deadlineMisses", "orphanBytesReclaimed", "orphanFilesRemoved", "expiredBytesReclaimed"})


def metric_name(name: str) -> str:
    """`tierLag` -> `lakeward_tier_lag`; counters get their `_total` from the client library."""
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    return f"lakeward_{snake.removesuffix('_total')}"


class ServerCollector(Collector):
    """Reads the coordinator and the store when Prometheus asks; keeps nothing."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> Iterator[Metric]:
        figures = self._services.coordinator.status().figures
        for name, help in SERVER_FIGURES.items():
            yield _family(name, help, (), [((), figures.get(name, 0))])
        yield from self._tables()
        yield from self._hot()
        yield from self._jobs()

    def _tables(self) -> Iterator[Metric]:
        shown = {t.table_id: t for t in self._services.coordinator.status().tables}
        figures = self._services.coordinator.table_figures()
        for name, help in TABLE_FIGURES.items():
            rows = [
                ((shown[i].path.database, shown[i].path.table, str(i)), values[name])
                for i, values in figures.items()
                if i in shown and name in values
            ]
            yield _family(name, help, ("database", "table", "tableId"), rows)

    def _hot(self) -> Iterator[Metric]:
        sizes = self._services.store.sizes()
        labels = ("database", "table")
        parts = (
            ("localLogBytes", "Bytes of log on the server's disk.", [s.local_bytes for s in sizes]),
            ("remoteLogBytes", "Bytes of log in the remote tier.", [s.remote_bytes for s in sizes]),
            ("stoppedBuckets", "Buckets that take no writes.", [s.stopped_buckets for s in sizes]),
        )
        for name, help, values in parts:
            rows = [((s.path.database, s.path.table), float(v)) for s, v in zip(sizes, values, strict=True)]
            yield _family(name, help, labels, rows)

    def _jobs(self) -> Iterator[Metric]:
        rows = [((j.name, j.pool), float(j.live)) for j in self._services.coordinator.jobs()]
        yield _family("jobLive", "1 while the job beats within its lease.", ("job", "pool"), rows)


def _family(name: str, help: str, labels: Iterable[str], rows: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    kind = CounterMetricFamily if name in COUNTERS else GaugeMetricFamily
    family = kind(metric_name(name), help, labels=list(labels))
    for values, figure in rows:
        family.add_metric(list(values), figure)
    return family
