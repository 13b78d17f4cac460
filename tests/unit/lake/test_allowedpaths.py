# SPDX-License-Identifier: Apache-2.0
"""Paths that a table's metadata names lie below the table's own location, or nothing is opened or deleted there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakeward.errors import LakePathRefused
from lakeward.lake.allowedpaths import AllowedFiles, AllowedPaths
from lakeward.lake.delta.plugin import DeltaLakeStorage
from lakeward.lake.hudi.landing import NOTE, undo_unfinished
from lakeward.lake.paimon.meta.history import PaimonHistory
from lakeward.lake.paimon.meta.manifests import Manifests
from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward.lake.tablefiles import LocalFiles
from lakeward.model import TableInfo, TablePath
from lakeward.spi import LakeStorage, load_lake
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog

FORMATS = ("iceberg", "delta", "paimon", "lance", "hudi")


def open_lake(name: str, folder: Path, **options: str) -> LakeStorage:
    own = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"} if name == "iceberg" else {}
    (folder / "w").mkdir(exist_ok=True)
    return load_lake(name, {"warehouse": f"{folder}/w", **own, **options})


def filled(lake: LakeStorage, database: str, first: int) -> TableInfo:
    table = LakeSuite().table_info()
    table = replace(table, path=TablePath(database, "t"))
    lake.catalog().create(table)
    log = ScriptedLog(table)
    for number in range(first, first + 3):
        log.append(B0, row(number))
    LakeRound.plan(lake, log).run()
    return table


def ids(lake: LakeStorage, table: TableInfo) -> list[int]:
    return [r["id"] for _, _, r in lake_rows(lake, table)]


def test_normalised_paths(tmp_path: Path) -> None:
    root = tmp_path / "w" / "db" / "t"
    root.mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (root / "out").symlink_to(tmp_path / "other")
    (root / "out.parquet").symlink_to(tmp_path / "other" / "x.parquet")
    (tmp_path / "alias").symlink_to(tmp_path / "w")
    local = AllowedPaths("db.t", f"file://{root}", str(tmp_path / "w"), (f"{tmp_path}/shared",))
    for path in (
        f"{root}/a",
        f"file://{root}/p=1/a",
        f"file:{root}/a#b",
        f"{tmp_path}/alias/db/t/a",
        f"{tmp_path}/shared/a",
    ):
        assert local.allows(path), path
    for path in (
        f"{root}/../u/a",
        f"{root}/%2e%2E/u/a",
        f"{root}/./a",
        f"{root}x/a",
        f"{root}/out/x.parquet",
        f"{root}/out.parquet",
        f"file://host{root}/a",
        f"file://{tmp_path}#{root}/a",
        f"{root}/a\n",
        "relative/a",
        f"s3://{root}/a",
        "",
    ):
        assert not local.allows(path), path
    remote = AllowedPaths("db.t", "s3a://bucket/w/db/t/", "", ("s3://more/x",))
    for path in ("s3://bucket/w/db/t/a", "s3n://bucket/w/db/t/p=%20/a", "s3://more/x/y"):
        assert remote.allows(path), path
    for path in ("s3://other/w/db/t/a", "gs://bucket/w/db/t/a", "s3://bucket/w/db/t2/a", "s3://more/xy", "/w/db/t/a"):
        assert not remote.allows(path), path
    with pytest.raises(LakePathRefused, match="allowed-locations"):
        AllowedFiles(LocalFiles(), local).delete(f"{root}/../u/a")


def test_a_link_in_place_of_the_tables_folder_does_not_move_the_table(tmp_path: Path) -> None:
    (tmp_path / "w" / "ben" / "t").mkdir(parents=True)
    (tmp_path / "w" / "ann").mkdir()
    (tmp_path / "w" / "ann" / "t").symlink_to(tmp_path / "w" / "ben" / "t")
    allowed = AllowedPaths("ann.t", f"{tmp_path}/w/ann/t", f"{tmp_path}/w")
    assert not allowed.allows(f"{tmp_path}/w/ann/t/a")
    (tmp_path / "link").symlink_to(tmp_path / "w")  # above the warehouse links are the operator's
    assert AllowedPaths("ben.t", f"{tmp_path}/link/ben/t", f"{tmp_path}/link").allows(f"{tmp_path}/link/ben/t/a")


@pytest.fixture
def other_file(tmp_path: Path) -> Iterator[Path]:
    """Somebody else's, which must be there afterwards."""
    file = tmp_path / "others.parquet"
    file.write_bytes(b"PAR1")
    yield file
    assert file.read_bytes() == b"PAR1"


@pytest.mark.parametrize("name", FORMATS)
def test_a_data_file_that_is_a_link_elsewhere_is_not_read(name: str, tmp_path: Path) -> None:
    lake = open_lake(name, tmp_path)
    table = filled(lake, "ann", 0)
    own, shared = data_files(lake, table)[0], tmp_path / "shared"
    shared.mkdir()
    os.rename(own, shared / "a")
    os.symlink(shared / "a", own)
    lake = open_lake(name, tmp_path)
    with pytest.raises(LakePathRefused):
        ids(lake, table)
    with pytest.raises(LakePathRefused):
        lake.open_maintenance(table).delete([own])
    assert ids(open_lake(name, tmp_path, **{"allowed-locations": str(shared)}), table) == [0, 1, 2]


def data_files(lake: LakeStorage, table: TableInfo) -> list[str]:
    snapshot = lake.open_reader(table).load_snapshot()
    assert snapshot is not None
    return [f.path.removeprefix("file://") for f in lake.open_reader(table).files(snapshot.snapshot_id)]


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_elsewhere_is_deleted(name: str, tmp_path: Path, other_file: Path) -> None:
    lake = open_lake(name, tmp_path)
    table = filled(lake, "ann", 0)
    upkeep = lake.open_maintenance(table)
    own = data_files(lake, table)[0]
    for path in (str(other_file), f"{own.rpartition('/')[0]}/../../../../../{other_file.name}", f"s3://bucket{own}"):
        with pytest.raises(LakePathRefused):
            upkeep.delete([path])


@pytest.mark.parametrize("form", ["absolute", "upwards", "encoded", "uri"])
def test_delta_paths_of_another_table_are_refused(tmp_path: Path, form: str) -> None:
    lake = open_lake("delta", tmp_path)
    assert isinstance(lake, DeltaLakeStorage)
    ann, ben = filled(lake, "ann", 0), filled(lake, "ben", 10)
    log = lake.log(ann.path)
    state, other = log.load(), next(iter(lake.log(ben.path).load().files.values()))
    relative = str(other.action["path"])
    path = {
        "absolute": f"{tmp_path}/w/ben/t/{relative}",
        "upwards": f"../../ben/t/{relative}",
        "encoded": f"%2e%2e/../ben/t/{relative}".replace("../ben", "%2E./ben"),
        "uri": f"file://{tmp_path}/w/ben/t/{relative}",
    }[form]
    assert log.append(state.version + 1, [{"add": {**other.action, "path": path}}])
    with pytest.raises(LakePathRefused):
        ids(lake, ann)
    with pytest.raises(LakePathRefused):
        data_files(lake, ann)
    upkeep = lake.open_maintenance(ann)
    assert upkeep.references() == {f for f in upkeep.references() if f.startswith(f"{tmp_path}/w/ann/t/")}
    assert ids(lake, ben) == [10, 11, 12]


def test_delta_vectors_elsewhere_are_refused(tmp_path: Path, other_file: Path) -> None:
    lake = open_lake("delta", tmp_path)
    assert isinstance(lake, DeltaLakeStorage)
    ann = filled(lake, "ann", 0)
    log = lake.log(ann.path)
    state = log.load()
    own = next(iter(state.files.values()))
    vector = {
        "storageType": "p",
        "pathOrInlineDv": f"file://{other_file}",
        "offset": 0,
        "sizeInBytes": 4,
        "cardinality": 1,
    }
    assert log.append(
        state.version + 1, [own.removal(0, changes_data=True), {"add": {**own.action, "deletionVector": vector}}]
    )
    with pytest.raises(LakePathRefused):
        ids(lake, ann)


def test_paimon_names_that_lead_elsewhere_are_refused(tmp_path: Path) -> None:
    lake = open_lake("paimon", tmp_path)
    assert isinstance(lake, PaimonLakeStorage)
    table = filled(lake, "ann", 0)
    lake_table = lake.connection.load(table.path)
    manifests, history = Manifests(lake_table), PaimonHistory.of(lake_table, table)
    (entry,) = manifests.live(history.head)
    entry.raw.file.file_name = f"../../../ben.db/t/{entry.raw.file.file_name}"
    with pytest.raises(LakePathRefused):
        manifests.entry(entry.raw)
    entry.raw.file.external_path = f"file://{tmp_path}/elsewhere/a.parquet"
    with pytest.raises(LakePathRefused):
        manifests.entry(entry.raw)
    for name in ("../../../ben.db/t/manifest/manifest-list-0", f"{tmp_path}/elsewhere"):
        with pytest.raises(LakePathRefused):
            manifests.reach([name])


def test_hudi_undoes_no_move_elsewhere(tmp_path: Path, other_file: Path) -> None:
    lake = open_lake("hudi", tmp_path)
    table = filled(lake, "ann", 0)
    hudi: Any = lake.table(table.path)  # type: ignore[attr-defined]
    note = {"round": "r", "requested": "2" * 17, "pending": [], "moves": [[f"{tmp_path}/taken", str(other_file)]]}
    hudi.put_own(NOTE, note)
    with pytest.raises(LakePathRefused):
        undo_unfinished(hudi)
    hudi.put_own(NOTE, {**note, "moves": [], "pending": [f"../../../../../{other_file.name}"]})
    with pytest.raises(LakePathRefused):
        undo_unfinished(hudi)


def test_lance_files_of_another_dataset_are_refused(tmp_path: Path) -> None:
    import lance

    lake = open_lake("lance", tmp_path)
    ann, ben = filled(lake, "ann", 0), filled(lake, "ben", 10)
    lance.dataset(f"{tmp_path}/w/ben/t.lance").tags.create("all", 3)
    lance.dataset(f"{tmp_path}/w/ben/t.lance").shallow_clone(f"{tmp_path}/w/ann/clone.lance", "all")
    clone = replace(ann, path=TablePath("ann", "clone"))
    with pytest.raises(LakePathRefused, match="another dataset"):
        other = open_lake("lance", tmp_path).table(clone.path)  # type: ignore[attr-defined]
        other.open(other.newest())
    assert ids(lake, ben) == [10, 11, 12]
