# SPDX-License-Identifier: Apache-2.0
"""Tiering into somebody else's catalog: Nessie, which hands out credentials of the store for a while, keeps one
snapshot of a table and no tag."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from lakeward.lake.iceberg.plugin import load
from lakeward.protocol.heartbeat import TableFailed, TableFinished
from tests.interop.nessie import start_nessie
from tests.kit.iceberg.s3 import s3_store
from tests.kit.inprocess import InProcessLakeward

pytestmark = pytest.mark.soak

COLUMNS = "id bigint not null, v string"


@pytest.fixture(scope="module")
def nessie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_store() as store, start_nessie(tmp_path_factory.mktemp("nessie"), store) as url:
        yield url


@pytest.fixture
def lakeward(nessie: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessLakeward]:
    """This process has no credentials of the store."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    lake: Any = load({"type": "rest", "uri": nessie})
    parts = InProcessLakeward(tmp_path / "hot", lake)
    yield parts
    parts.close()
    lake.connection.close()


def rows(start: int, stop: int, v: str) -> list[dict[str, Any]]:
    return [{"id": i, "v": v} for i in range(start, stop)]


def shown(url: str, path: str) -> dict[int, str]:
    """By PyIceberg alone."""
    found = load_catalog("n", type="rest", uri=url).load_table(path).scan().to_arrow().to_pylist()
    assert len(found) == len({r["id"] for r in found})
    return {r["id"]: r["v"] for r in found}


@pytest.mark.parametrize("version", ["2", "3"])
def test_rounds_and_compactions_into_nessie(lakeward: InProcessLakeward, nessie: str, version: str) -> None:
    path = f"db.t{version}"
    given: dict[str, Any] = {"iceberg.format-version": version}
    lakeward.create(path, COLUMNS, primary_key="id", buckets=2, **given)
    expected: dict[int, str] = {}
    for number in range(5):
        lakeward.upsert(path, rows(number, number + 20, f"v{number}"))
        lakeward.delete(path, [{"id": number}])
        expected = {**expected, **dict.fromkeys(range(number + 1, number + 20), f"v{number}")}
        expected.pop(number, None)
        assert all(isinstance(end, TableFinished) for end in lakeward.tier(path))
        assert shown(nessie, path) == expected
        if number == 2:
            assert isinstance(lakeward.compact(path), TableFinished)
            assert shown(nessie, path) == expected
            lakeward.restart()
            lakeward.coordinator.lakes.read_unseen()  # a server does so in the background
    lakeward.upsert(path, rows(0, 3, "tail"))
    union = {r["id"]: r["v"] for r in lakeward.read(path).to_table().to_pylist()}
    assert union == {**expected, **dict.fromkeys(range(3), "tail")}
    lakeward.coordinator.upkeep.run()


def test_a_change_by_another_engine_is_not_written_over(lakeward: InProcessLakeward, nessie: str) -> None:
    """An insert by PyIceberg between rounds: Nessie answers with its snapshot alone, so that ours cannot be found."""
    lakeward.create("db.log", COLUMNS)
    lakeward.append("db.log", rows(0, 10, "ours"))
    lakeward.tier("db.log")
    table = load_catalog("n", type="rest", uri=nessie).load_table("db.log")
    table.append(table.scan().to_arrow().slice(0, 1))
    lakeward.append("db.log", rows(10, 12, "later"))
    (end,) = lakeward.tier("db.log")
    assert isinstance(end, TableFailed)
    assert end.error["code"] == "lake-behind"
    assert load_catalog("n", type="rest", uri=nessie).load_table("db.log").scan().to_arrow().num_rows == 11
