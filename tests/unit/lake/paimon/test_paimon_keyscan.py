# SPDX-License-Identifier: Apache-2.0
"""Two ways to read a PK table's bucket: a large old file less what young ones name, or a merge of all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakeward.lake.paimon.meta.history import PaimonHistory
from lakeward.lake.paimon.meta.manifests import Manifests
from lakeward.lake.paimon.plugin import load
from lakeward.lake.paimon.scan.keyscan import KeyScan
from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite
from lakeward_testing.scripted_log import ScriptedLog

SUITE = LakeSuite()
COLUMNS = {"shop": "STRING NOT NULL", "id": "INT NOT NULL", "tags": "ARRAY<STRING>"}


@pytest.fixture
def lake(tmp_path: Path) -> PaimonLakeStorage:
    storage = load({"warehouse": str(tmp_path / "warehouse")})
    assert isinstance(storage, PaimonLakeStorage)
    return storage


def item(shop: str, number: int, *tags: str) -> dict[str, Any]:
    return {"shop": shop, "id": number, "tags": list(tags)}


def found(lake: PaimonLakeStorage, log: ScriptedLog) -> KeyScan | None:
    table = lake.connection.load(log.table.path)
    return KeyScan.find(Manifests(table).live(PaimonHistory.load(table, "t").head))


@pytest.mark.parametrize("key", [("shop", "id"), ("id",)])
def test_keys_of_young_files_go_from_the_old_one(lake: PaimonLakeStorage, key: tuple[str, ...]) -> None:
    log = SUITE.make_log(lake, columns=COLUMNS, primary_key=key, bucket_keys=key)
    shops = ("a", "b") if len(key) == 2 else ("a",)
    log.upsert(B0, *(item(shop, n, "first") for shop in shops for n in range(6)))
    log.delete(B0, item("a", 5))
    LakeRound.plan(lake, log).run()
    log.upsert(B0, item("a", 1, "second"), item("a", 9, "new"))
    log.delete(B0, item("a", 2))
    LakeRound.plan(lake, log).run()
    log.upsert(B0, item("a", 1, "third"), item("a", 2, "again"))
    LakeRound.plan(lake, log).run()
    scan = found(lake, log)
    assert scan is not None
    assert len(scan.young) == 2
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_files_without_a_large_old_one_are_merged(lake: PaimonLakeStorage) -> None:
    log = SUITE.make_log(lake, columns=COLUMNS, primary_key=("shop", "id"), bucket_keys=("shop", "id"))
    log.upsert(B0, item("a", 1, "first"), item("a", 2, "first"))
    LakeRound.plan(lake, log).run()
    log.upsert(B0, *(item("b", n, "second") for n in range(5)), item("a", 1, "second"))
    log.delete(B0, item("a", 2))
    LakeRound.plan(lake, log).run()
    assert found(lake, log) is None
    assert lake_rows(lake, log.table) == log.expected(log.ends())
