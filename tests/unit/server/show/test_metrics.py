# SPDX-License-Identifier: Apache-2.0
"""Names of metrics as Prometheus shows them, from figures as the coordinator and the store give them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from lakeward.hot.embedded.sizes import TableSizes
from lakeward.model import TIER, SideId, TableId, TablePath
from lakeward.model.side import COMPACT
from lakeward.server.show.metrics import SIDE_FIGURES, WORK_FIGURES, Figure, hot_metrics, side_metrics, work_metrics

PATH = TablePath("shop", "orders")
SIDE = SideId(TableId("t1"))


class Fixed(Collector):
    def __init__(self, *metrics: Metric) -> None:
        self.metrics = metrics

    def collect(self) -> list[Metric]:
        return list(self.metrics)


def shown(*metrics: Metric) -> list[str]:
    registry = CollectorRegistry()
    registry.register(Fixed(*metrics))
    return generate_latest(registry).decode().splitlines()


def test_names_are_flusss_in_snake_case_and_the_help_names_them() -> None:
    lines = shown(*side_metrics({TableId("t1"): PATH}, {SIDE: {"tierLag": 5, "failuresTotal": 2}}))
    assert 'lakeward_tier_lag{database="shop",side="default",table="orders",tableId="t1"} 5.0' in lines
    assert 'lakeward_failures_total{database="shop",side="default",table="orders",tableId="t1"} 2.0' in lines
    for name in ("tierLag", "tierDuration", "pendingTime", "failuresTotal", "fileSize", "recordCount", "freshness"):
        assert any(line.startswith("# HELP lakeward_") and line.endswith(f"Fluss: {name}.") for line in lines), name


def test_a_figure_that_is_not_known_and_a_table_that_is_gone_are_left_out() -> None:
    lines = shown(*side_metrics({TableId("t1"): PATH}, {SIDE: {"lag": 1}, SideId(TableId("gone")): {"lag": 9}}))
    assert [line for line in lines if line.startswith("lakeward_")] == [
        'lakeward_lag{database="shop",side="default",table="orders",tableId="t1"} 1.0'
    ]


def test_what_ended_is_counted_per_kind_of_work() -> None:
    figures = {(SIDE, TIER): {"roundsEnded": 3}, (SIDE, COMPACT): {"roundsEnded": 1}}
    lines = shown(*work_metrics({TableId("t1"): PATH}, figures))
    for kind, ended in (("tier", 3.0), ("compact", 1.0)):
        labels = f'database="shop",kind="{kind}",side="default",table="orders",tableId="t1"'
        assert f"lakeward_rounds_ended_total{{{labels}}} {ended}" in lines


def test_what_went_in_is_counted_per_table() -> None:
    sizes = TableSizes(
        path=PATH,
        table_id=TableId("t1"),
        local_bytes=10,
        local_segments=1,
        remote_bytes=20,
        remote_segments=1,
        buckets=1,
        stopped_buckets=0,
        appended_records=7,
        appended_bytes=70,
    )
    lines = shown(*hot_metrics([sizes]))
    for wanted in ("rows_in_total", "bytes_in_total", "local_log_bytes", "remote_log_bytes", "stopped_buckets"):
        assert any(line.startswith(f'lakeward_{wanted}{{database="shop",table="orders"}} ') for line in lines), wanted


def test_every_metric_has_a_name_of_its_own() -> None:
    figures = (*SIDE_FIGURES, *WORK_FIGURES)
    assert len({f.metric for f in figures}) == len(figures)
    assert Figure("rowsOut", "", counter=True).metric == "lakeward_rows_out"
