# SPDX-License-Identifier: Apache-2.0
"""The server's figures for Prometheus: Fluss's metrics under their names in snake case, and ours beside them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lakeward.hot.embedded.sizes import TableSizes
from lakeward.model import SideId, TableId, TablePath, WorkKind
from lakeward.protocol.auth import ANONYMOUS
from lakeward.protocol.sources import SourceStatus
from lakeward.server.services import PageServices

if TYPE_CHECKING:
    from lakeward.server.live.warehouse import LiveWarehouse


@dataclass(frozen=True)
class Figure:
    """One metric. A name in Fluss's spelling becomes `lakeward_` and snake case; Prometheus adds `_total` to
    counters.
    """

    name: str
    help: str
    counter: bool = False

    @property
    def metric(self) -> str:
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()
        return f"lakeward_{snake.removesuffix('_total')}"

    def family(self, labels: Iterable[str], rows: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
        kind = CounterMetricFamily if self.counter else GaugeMetricFamily
        family = kind(self.metric, self.help, labels=list(labels))
        for values, figure in rows:
            family.add_metric(list(values), figure)
        return family


SERVER_FIGURES = (
    Figure("pendingTablesCount", "Tables that are due and wait for a slot. Fluss: pendingTablesCount."),
    Figure("runningTablesCount", "Tables whose round runs. Fluss: runningTablesCount."),
    Figure("lakeTableCount", "Tables with the lake enabled."),
    Figure("quarantinedTablesCount", "Tables whose rounds stopped after too many failures in a row."),
    Figure("jobsLive", "Tiering jobs that beat within their lease."),
    Figure("jobsExpected", "Tiering jobs named in jobs.expected."),
    Figure("slots", "Rounds that live jobs can run at once."),
    Figure("orphanBytesReclaimed", "Bytes freed by orphan removal since the server started.", counter=True),
    Figure("orphanFilesRemoved", "Files removed by orphan removal since the server started.", counter=True),
    Figure("expiredBytesReclaimed", "Bytes freed by snapshot expiry since the server started.", counter=True),
)
SIDE_FIGURES = (
    Figure("tierLag", "Milliseconds since the last accepted finish; -1 before the first. Fluss: tierLag."),
    Figure(
        "tierDuration",
        "Milliseconds of the last round, from hand-out to finish; -1 before the first. Fluss: tierDuration.",
    ),
    Figure(
        "pendingTime",
        "Milliseconds the table has been waiting for a slot; 0 when it does not wait. Fluss: pendingTime.",
    ),
    Figure("failuresTotal", "Rounds that failed. Fluss: failuresTotal.", counter=True),
    Figure("fileSize", "Bytes of the lake table; -1 unknown. Fluss: fileSize."),
    Figure("recordCount", "Rows of the lake table; -1 unknown. Fluss: recordCount."),
    Figure("freshness", "Milliseconds a row may wait at most. Fluss: freshness."),
    Figure("lag", "Milliseconds the oldest waiting row has waited; 0 when nothing waits."),
    Figure(
        "slack",
        "Milliseconds until a round must start to keep the freshness, below 0 when it is late; absent when nothing "
        "waits.",
    ),
    Figure("deadlineMisses", "Deadlines that passed before the lake had the row.", counter=True),
    Figure("waitingRows", "Rows the lake does not have yet."),
    Figure("waitingBytes", "Bytes of log the lake does not have yet."),
    Figure("fileCount", "Data files of the lake table; -1 unknown."),
    Figure("deleteFileCount", "Delete files of the lake table; -1 unknown."),
    Figure("snapshotCount", "Snapshots the lake table keeps; -1 unknown."),
    Figure("debtFiles", "Files that need not be there, as the last compaction left it; -1 before the first."),
    Figure(
        "writeAmplification",
        "Bytes that compactions wrote for each byte that rounds wrote, since the server started.",
    ),
)
SIDE_LABELS = ("database", "table", "tableId", "side")
WORK_FIGURES = (
    Figure("roundsEnded", "Rounds that ended, failed ones included, since the server started.", counter=True),
    Figure("rowsOut", "Rows that rounds wrote into the lake since the server started.", counter=True),
    Figure("deletesOut", "Rows that rounds deleted in the lake since the server started.", counter=True),
    Figure("bytesOut", "Bytes that rounds wrote into the lake since the server started.", counter=True),
    Figure("queueWaitSeconds", "Seconds that rounds waited for a slot since the server started.", counter=True),
    Figure("commitSeconds", "Seconds that rounds spent in their commit since the server started.", counter=True),
    Figure("workSeconds", "Seconds from hand-out to end, of all that ended since the server started.", counter=True),
    Figure("bytesRewritten", "Bytes of files that compactions read since the server started.", counter=True),
    Figure("filesReplaced", "Data files that compactions took out since the server started.", counter=True),
    Figure(
        "groupsDropped",
        "Groups of files rewritten for nothing, as one of them was gone at the commit, since the server started.",
        counter=True,
    ),
    Figure("roundsSharingRead", "Rounds that read the log with those of other sides of their table.", counter=True),
    Figure("logBytesRead", "Bytes of log read for rounds; what several shared counts in one of them.", counter=True),
)
HOT_FIGURES = (
    (
        Figure("rowsIn", "Records in the table's logs since it was made; an update of a PK table is two.", True),
        "appended_records",
    ),
    (Figure("bytesIn", "Bytes appended to the table's logs since the server started.", True), "appended_bytes"),
    (Figure("localLogBytes", "Bytes of log on the server's disk."), "local_bytes"),
    (Figure("remoteLogBytes", "Bytes of log in the remote tier."), "remote_bytes"),
    (
        Figure("ignoredColumnRows", "Rows of writers with an older schema: values for dropped columns ignored.", True),
        "ignored_rows",
    ),
    (Figure("stoppedBuckets", "Buckets that take no writes."), "stopped_buckets"),
)
LIVE_FIGURES = (
    Figure("liveLoads", "Loads of the table from warehouse `live` since the server started.", counter=True),
    Figure("liveTailRows", "Rows of the hot tail that the newest answer of `live` names, in files of the tail."),
    Figure("liveTailFiles", "Files of the hot tail that the newest answer of `live` names."),
    Figure("liveTailBytes", "Bytes of these files."),
    Figure("liveComplete", "1 where the newest answer of `live` reaches its moment, 0 where its tail was cut short."),
    Figure("liveMomentAge", "Milliseconds since the moment that the newest answer of `live` shows."),
)
SOURCE_FIGURES = (
    (Figure("sourceRows", "Rows that the source has stored.", counter=True), lambda s: s.source.rows),
    (Figure("sourceLagMessages", "Messages that the source is behind its origin."), lambda s: s.lag.messages),
    (Figure("sourceLagBytes", "Bytes of log that the source is behind its origin."), lambda s: s.lag.bytes),
    (Figure("sourceLagSeconds", "Seconds that the source is behind its origin."), lambda s: s.lag.seconds),
    (Figure("sourceSlotBytes", "Bytes of log that the origin retains for the source."), lambda s: s.lag.slot_bytes),
    (Figure("sourceStopped", "1 while the source is stopped by an error."), lambda s: float(s.phase == "stopped")),
)
THREAD_WELL = Figure("backgroundThreadWell", "1 while a thread of the background does its turns.")
JOB_LIVE = Figure("jobLive", "1 while the job beats within its lease.")


class ServerCollector(Collector):
    """Reads the source when Prometheus asks; keeps nothing."""

    def __init__(self, services: PageServices) -> None:
        self._services = services

    def collect(self) -> Iterator[Metric]:
        source = self._services.source
        status = source.status()
        for figure in SERVER_FIGURES:
            yield figure.family((), [((), status.figures.get(figure.name, 0))])
        paths = {t.table_id: t.path for t in status.tables}
        yield from side_metrics(paths, source.side_figures())
        yield from work_metrics(paths, source.work_figures())
        yield from hot_metrics(source.sizes())
        yield from live_metrics(self._services.live)
        yield from source_metrics([] if self._services.sources is None else self._services.sources.listed(ANONYMOUS))
        yield THREAD_WELL.family(("thread",), [((b.name,), float(b.is_well)) for b in self._services.background()])
        yield JOB_LIVE.family(("job", "pool"), [((j.name, j.pool), float(j.live)) for j in status.jobs])


Paths = Mapping[TableId, TablePath]


def side_metrics(paths: Paths, figures: Mapping[SideId, Mapping[str, float]]) -> Iterator[Metric]:
    """A table that was dropped between the two questions is left out."""
    known = [(_labels(paths, side), values) for side, values in figures.items() if side.table_id in paths]
    yield from _families(SIDE_FIGURES, SIDE_LABELS, known)


def work_metrics(paths: Paths, figures: Mapping[tuple[SideId, WorkKind], Mapping[str, float]]) -> Iterator[Metric]:
    known = [
        ((*_labels(paths, side), str(kind)), values)
        for (side, kind), values in figures.items()
        if side.table_id in paths
    ]
    yield from _families(WORK_FIGURES, (*SIDE_LABELS, "kind"), known)


def _labels(paths: Paths, side: SideId) -> tuple[str, ...]:
    path = paths[side.table_id]
    return path.database, path.table, side.table_id, str(side.name)


def _families(
    figures: Iterable[Figure], labels: Iterable[str], known: Sequence[tuple[tuple[str, ...], Mapping[str, float]]]
) -> Iterator[Metric]:
    for figure in figures:
        yield figure.family(labels, [(row, values[figure.name]) for row, values in known if figure.name in values])


def hot_metrics(sizes: Iterable[TableSizes]) -> Iterator[Metric]:
    listed = list(sizes)
    for figure, field in HOT_FIGURES:
        rows = [((s.path.database, s.path.table), float(getattr(s, field))) for s in listed]
        yield figure.family(("database", "table"), rows)


def source_metrics(sources: Sequence[SourceStatus]) -> Iterator[Metric]:
    for figure, value in SOURCE_FIGURES:
        rows = [((s.source.name, s.source.kind), float(v)) for s in sources if (v := value(s)) is not None]
        yield figure.family(("source", "kind"), rows)


def live_metrics(live: LiveWarehouse | None) -> Iterator[Metric]:
    """Metrics of tables that were loaded since the server started."""
    known = [] if live is None else [((p.database, p.table), figures) for p, figures in live.figures().items()]
    yield from _families(LIVE_FIGURES, ("database", "table"), known)
