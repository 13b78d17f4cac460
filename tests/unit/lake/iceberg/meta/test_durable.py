# SPDX-License-Identifier: Apache-2.0
"""In a local folder every file of a commit is on disk before the catalog names it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lakeward.lake.iceberg.meta.location import sync_files
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward_testing.faults import Faults
from lakeward_testing.lakes import LakeRound
from lakeward_testing.lakes.suite import B0, LakeSuite, row


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What the system was asked to put on disk."""
    found: set[str] = set()
    real: Callable[[int], None] = os.fsync

    def fsync(handle: int) -> None:
        found.add(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_a_commits_files_and_folders_are_on_disk_before_it(lake: IcebergLakeStorage, synced: set[str]) -> None:
    log = LakeSuite().make_log(lake, primary_key=("id",))
    log.upsert(B0, row(1))
    LakeRound.plan(lake, log).run()
    log.upsert(B0, row(1, "again"))
    before, missed = set(synced), list[str]()

    def look(facts: object) -> bool:
        root = Path(lake.connection.load(log.table.path).location().removeprefix("file://"))
        there = {str(p) for p in root.rglob("*") if p.suffix in (".parquet", ".avro", ".json")}
        first = {str(p) for p in root.rglob("00000-*.json")}  # made with the table
        missed.extend(sorted((there | {str(root / "data"), str(root / "metadata")}) - first - synced))
        return False

    with Faults() as faults:
        faults.arm("catalog.before-swap", when=look)
        LakeRound.plan(lake, log).run()
    assert missed == []
    assert len(synced - before) >= 5, "data, deletes, their manifests, the list and the table's metadata"


def test_what_is_in_an_object_store_is_left_to_it(synced: set[str]) -> None:
    sync_files(["s3://bucket/data/a.parquet", "abfss://c@a.dfs.core.windows.net/x"])
    assert synced == set()


def test_a_name_with_a_per_cent_sign_is_found(tmp_path: Path, synced: set[str]) -> None:
    plain = tmp_path / "a%20b.parquet"
    plain.write_bytes(b"x")
    sync_files([f"file://{plain}"])
    assert str(plain) in synced
