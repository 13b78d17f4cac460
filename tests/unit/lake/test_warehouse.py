# SPDX-License-Identifier: Apache-2.0
"""A warehouse that is away as a whole, as a folder that is not mounted: no answer, and rounds go on once it is back."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.errors import LakeTableGone, LakeUnavailable
from lakeward.spi import load_lake
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite, row

FORMATS = pytest.mark.parametrize("format", ["delta", "hudi", "lance", "paimon"])


@FORMATS
def test_a_warehouse_that_is_away_does_not_answer(tmp_path: Path, format: str) -> None:
    warehouse, away = tmp_path / "warehouse", tmp_path / "away"
    lake = load_lake(format, {"warehouse": str(warehouse)})
    log = LakeSuite().make_log(lake)
    log.append(B0, row(1))
    LakeRound.plan(lake, log).run()
    warehouse.rename(away)
    for deed in (lake.open_reader(log.table).load_base, lambda: lake.catalog().validate(log.table)):
        with pytest.raises(LakeUnavailable, match=f"{warehouse} does not exist; is it mounted"):
            deed()
    assert not lake.catalog().exists(log.table.path)
    away.rename(warehouse)
    log.append(B0, row(2))
    LakeRound.plan(lake, log).run()
    assert lake_rows(lake, log.table) == log.expected(log.ends())


@FORMATS
def test_a_table_that_is_gone_from_a_warehouse_that_answers_is_gone(tmp_path: Path, format: str) -> None:
    lake = load_lake(format, {"warehouse": str(tmp_path)})
    with pytest.raises(LakeTableGone):
        lake.open_reader(LakeSuite().table_info()).load_base()
