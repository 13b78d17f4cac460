# SPDX-License-Identifier: Apache-2.0
"""Somebody drops a lake table: the message says what to do, and doing it puts the table back."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeward.coordinator.federation import Federation
from lakeward.errors import InvalidRequest
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import TablePath, TableState
from lakeward.protocol.heartbeat import TableFailed
from lakeward.protocol.tables import AlterTable
from lakeward_testing.clock import ManualClock
from tests.kit.inprocess import InProcessLakeward

TABLE = "db.t"
PATH = TablePath.parse(TABLE)


class Dropped:
    """A table with rows in the lake and one more in the hot store, whose lake table was dropped; its round said so."""

    def __init__(self, folder: Path, lake: IcebergLakeStorage, primary_key: str | None) -> None:
        self.lake, self.clock = lake, ManualClock()
        self.lakeward = InProcessLakeward(folder / "server", lake, self.clock)
        self.federation = Federation(self.lakeward.coordinator)
        self.put = self.lakeward.append if primary_key is None else self.lakeward.upsert
        keys: dict[str, Any] = {} if primary_key is None else {"primary_key": primary_key}
        self.lakeward.create(TABLE, "id bigint not null", **keys)
        for number in range(3):
            self.put(TABLE, [{"id": number}])
            assert not failures(self.lakeward.tier(TABLE))
        self.put(TABLE, [{"id": 3}])
        lake.connection.catalog.drop_table(("db", "t"))
        self.said = failures(self.lakeward.tier(TABLE))[0]

    def check(self) -> None:
        """Rounds go on, and lake and union show every row once."""
        self.clock.advance(600)
        self.put(TABLE, [{"id": 4}])
        assert not failures(self.lakeward.tier(TABLE))
        assert self.lakeward.coordinator.board.find(PATH).state is not TableState.FAILED
        for mode in ("lake", "union"):
            rows = self.lakeward.read(TABLE, mode=mode).to_table()["id"].to_pylist()
            assert sorted(rows) == [0, 1, 2, 3, 4], mode


def failures(ends: Any) -> list[str]:
    return [str(e.error["message"]) for e in ends if isinstance(e, TableFailed)]


@pytest.fixture(params=[None, "id"], ids=["log", "pk"])
def dropped(request: pytest.FixtureRequest, tmp_path: Path, lake: IcebergLakeStorage) -> Iterator[Dropped]:
    table = Dropped(tmp_path, lake, request.param)
    yield table
    table.lakeward.close()


def test_it_comes_back_from_the_files_that_are_left(dropped: Dropped) -> None:
    assert f"`lakeward table restore-lake {TABLE}`" in dropped.said
    restored = dropped.federation.restore_lake(PATH)
    assert restored.source is not None
    assert restored.source.endswith(".metadata.json")
    dropped.check()
    with pytest.raises(InvalidRequest, match="nothing to restore"):
        dropped.federation.restore_lake(PATH)


def test_where_nothing_is_left_it_is_made_anew(dropped: Dropped, tmp_path: Path) -> None:
    (folder,) = {p.parent for p in tmp_path.rglob("*.metadata.json")}
    shutil.rmtree(folder)
    with pytest.raises(InvalidRequest, match=r"no files of it are left .*restore-lake db.t --anew`"):
        dropped.federation.restore_lake(PATH)
    assert dropped.federation.restore_lake(PATH, anew=True).source is None
    dropped.check()


def test_a_lake_can_be_switched_off_though_its_table_is_gone(dropped: Dropped) -> None:
    off, on = (AlterTable(properties={"table.datalake.enabled": value}) for value in ("false", "true"))
    dropped.federation.alter(PATH, off)
    with pytest.raises(InvalidRequest, match="the lake is not enabled"):
        dropped.federation.restore_lake(PATH)
    dropped.federation.alter(PATH, on)
    dropped.clock.advance(600)
    assert "lakeward table resync" in failures(dropped.lakeward.tier(TABLE))[0]
