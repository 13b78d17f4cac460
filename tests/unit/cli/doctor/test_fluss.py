# SPDX-License-Identifier: Apache-2.0
"""What `doctor --fluss` says of the lake tables of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from lakeward.cli.app import run
from lakeward.cli.doctor.diagnosis import Level
from lakeward.cli.doctor.fluss import examine_cluster
from lakeward.hot.fluss.clusterview import BEHIND, CURRENT, LATE, REFUSED, UNREADABLE, TableView
from lakeward.spi import LakeTotals

AT = "127.0.0.1:9123"


def view(state: str, **more: Any) -> TableView:
    return TableView(path="shop.orders", state=state, freshness_ms=10_000, **more)


def totals(data_files: int, delete_files: int) -> LakeTotals:
    return LakeTotals(data_files=data_files, delete_files=delete_files, rows=1, bytes=1, snapshots=1)


def test_a_table_in_time_has_no_finding() -> None:
    assert examine_cluster([view(CURRENT, totals=totals(9, 7)), view(BEHIND, waiting=3, lag_ms=5_000)], AT) == []


@pytest.mark.parametrize(
    ("table", "check", "level", "mend"),
    [
        (view(LATE, lag_ms=90_000, waiting=3), "freshness", Level.WRONG, f"lakeward tier --fluss {AT}"),
        (
            view(LATE, lag_ms=90_000, waiting=3, last_commit_at_ms=1, job="a"),
            "freshness",
            Level.WRONG,
            f"lakeward tier-now shop.orders --fluss {AT}",
        ),
        (view(UNREADABLE, reason="the lake is away"), "lake", Level.WRONG, "once the lake answers"),
        (view(REFUSED, reason="the log is indexed"), "supported", Level.SOON, "Fluss's Flink job"),
        (
            view(CURRENT, totals=totals(5, 8)),
            "deletes",
            Level.SOON,
            f"lakeward maintain shop.orders --fluss {AT} --now",
        ),
    ],
    ids=["never-tiered", "late", "unreadable", "refused", "deletes"],
)
def test_each_finding_names_what_mends_it(table: TableView, check: str, level: Level, mend: str) -> None:
    (finding,) = examine_cluster([table], AT)
    assert (finding.check, finding.level, finding.about) == (check, level, "shop.orders")
    assert mend in finding.mend
    assert table.reason is None or finding.figure == table.reason


def test_a_probe_is_for_a_servers_lakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--fluss", AT, "--probe"]) == 2
    assert "not together with --fluss" in capsys.readouterr().err
