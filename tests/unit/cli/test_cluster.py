# SPDX-License-Identifier: Apache-2.0
"""What commands on a Fluss cluster print for people."""

from __future__ import annotations

import pytest

from lakeward.cli.cluster import print_tables
from lakeward.hot.fluss.clusterview import TableView


def test_reasons_stand_below_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    reason = "table shop.rows: table.log.format 'indexed': only logs in Arrow format are read; " + "x" * 80
    refused = TableView(path="shop.rows", state="refused", freshness_ms=10_000, reason=reason)
    print_tables([TableView(path="shop.orders", state="current", freshness_ms=10_000), refused])
    said = capsys.readouterr()
    assert max(map(len, said.out.splitlines())) < 100
    assert said.err == f"shop.rows is refused: {reason}\n"
