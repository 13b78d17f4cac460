# SPDX-License-Identifier: Apache-2.0
"""What commands on a Fluss cluster print for people."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakeward.cli.cluster import print_tables
from lakeward.hot.fluss.clusterview import TableView
from lakeward.spi import LakeTotals


def test_reasons_stand_below_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    reason = "table shop.rows: table.log.format 'indexed': only logs in Arrow format are read; " + "x" * 80
    refused = TableView(path="shop.rows", state="refused", freshness_ms=10_000, reason=reason)
    print_tables([TableView(path="shop.orders", state="current", freshness_ms=10_000), refused])
    said = capsys.readouterr()
    assert max(map(len, said.out.splitlines())) < 100
    assert said.err == f"shop.rows is refused: {reason}\n"


def test_rows_that_are_an_upper_bound_are_shown_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    totals = LakeTotals(data_files=2, delete_files=1, rows=13_179, bytes=1, snapshots=1)
    for name, is_exact in (("shop.log", True), ("shop.pk", False)):
        print_tables(
            [TableView(path=name, state="current", freshness_ms=1_000, totals=replace(totals, is_exact=is_exact))]
        )
    exact, bound = (line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("shop."))
    assert (exact[-2:], bound[-3:]) == (["13,179", "2"], ["<=", "13,179", "2"])
