# SPDX-License-Identifier: Apache-2.0
"""An Iceberg table's metadata names paths of another table, or of anything on the machine: nothing there is opened or
deleted, by nobody.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.update import SetPropertiesUpdate

from lakeward.errors import LakePathRefused
from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import TableInfo, TablePath
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog


def open_lake(folder: Path, **more: str) -> IcebergLakeStorage:
    options = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/w", **more}
    return IcebergLakeStorage(IcebergConnection(options))


def filled(lake: IcebergLakeStorage, database: str, first: int, rounds: int = 1) -> TableInfo:
    table = replace(LakeSuite().table_info(), path=TablePath(database, "t"))
    lake.catalog().create(table)
    log = ScriptedLog(table)
    for _ in range(rounds):
        log.append(B0, row(first))
        LakeRound.plan(lake, log).run()
    return table


def metadata_file(lake: IcebergLakeStorage, table: TableInfo) -> Path:
    return Path(lake.connection.load(table.path).metadata_location.removeprefix("file://"))


def rewritten(lake: IcebergLakeStorage, table: TableInfo, change: Callable[[dict[str, Any]], Any]) -> None:
    """By somebody who may write below the table's folder; what was parsed before is forgotten."""
    file = metadata_file(lake, table)
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    lake.connection.close()


def rows(lake: IcebergLakeStorage, table: TableInfo) -> list[int]:
    return [r["id"] for _, _, r in lake_rows(lake, table)]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[IcebergLakeStorage]:
    lake = open_lake(tmp_path)
    yield lake
    lake.connection.close()


def test_manifests_of_another_table_are_not_believed(lake: IcebergLakeStorage) -> None:
    ann, ben = filled(lake, "ann", 1), filled(lake, "ben", 2)
    assert rows(lake, ben) == [2]
    theirs = json.loads(metadata_file(lake, ben).read_text())["snapshots"][-1]["manifest-list"]
    rewritten(lake, ann, lambda c: c["snapshots"][-1].update({"manifest-list": theirs}))
    for read in (
        lambda: rows(lake, ann),
        lambda: lake.open_reader(ann).files(lake.open_reader(ann).load_base().head or ""),  # type: ignore[arg-type]
        lambda: lake.open_maintenance(ann).references(),
        lambda: lake.connection.catalog.purge_table(("ann", "t")),
    ):
        with pytest.raises(LakePathRefused):
            read()
    assert rows(lake, ben) == [2]


def test_data_files_of_another_table_are_neither_read_nor_purged(lake: IcebergLakeStorage) -> None:
    """Its own manifest list, copied below its folder, names another's manifests."""
    ann, ben = filled(lake, "ann", 1), filled(lake, "ben", 2)
    theirs = json.loads(metadata_file(lake, ben).read_text())["snapshots"][-1]["manifest-list"]
    own = metadata_file(lake, ann).parent / "copied.avro"
    own.write_bytes(Path(theirs.removeprefix("file://")).read_bytes())
    rewritten(lake, ann, lambda c: c["snapshots"][-1].update({"manifest-list": f"file://{own}"}))
    for read in (
        lambda: rows(lake, ann),
        lambda: lake.open_maintenance(ann).references(),
        lambda: lake.connection.catalog.purge_table(("ann", "t")),
    ):
        with pytest.raises(LakePathRefused):
            read()
    assert lake.connection.catalog.table_exists(("ann", "t"))
    assert rows(lake, ben) == [2]


@pytest.mark.parametrize("place", ["/", "{root}/w", "{root}/w/ben/t", "{root}/w/ann/t/../../ben/t"])
def test_a_table_does_not_say_that_it_lies_elsewhere(lake: IcebergLakeStorage, tmp_path: Path, place: str) -> None:
    ann, ben = filled(lake, "ann", 1), filled(lake, "ben", 2)
    rewritten(lake, ann, lambda c: c.update({"location": place.format(root=f"file://{tmp_path}")}))
    with pytest.raises(LakePathRefused):
        rows(lake, ann)
    table = lake.connection.catalog.load_table(("ann", "t"))
    with pytest.raises(LakePathRefused):
        lake.connection.catalog.commit_table(table, (), (SetPropertiesUpdate(updates={"owner": "x"}),))
    assert rows(lake, ben) == [2]


@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path"])
def test_rounds_write_nowhere_else(lake: IcebergLakeStorage, tmp_path: Path, name: str) -> None:
    ann, _ = filled(lake, "ann", 1), filled(lake, "ben", 2)
    rewritten(lake, ann, lambda c: c["properties"].update({name: f"file://{tmp_path}/w/ben/t/x"}))
    log = ScriptedLog(ann)
    log.append(B0, row(0), row(1))
    with pytest.raises(LakePathRefused):
        LakeRound.plan(lake, log).run()
    assert not (tmp_path / "w" / "ben" / "t" / "x").exists()


def test_old_metadata_elsewhere_is_left_alone(lake: IcebergLakeStorage, tmp_path: Path) -> None:
    ann, victim = filled(lake, "ann", 1), tmp_path / "victim.json"
    victim.write_text("{}")
    entries = [{"timestamp-ms": n, "metadata-file": f"file://{victim}"} for n in range(30)]
    rewritten(lake, ann, lambda c: c.update({"metadata-log": entries}))
    log = ScriptedLog(ann)
    log.append(B0, row(0), row(1))
    LakeRound.plan(lake, log).run()
    assert victim.exists()
    with pytest.raises(LakePathRefused):
        lake.connection.catalog.purge_table(("ann", "t"))
    assert victim.exists()


def test_a_metadata_file_that_is_a_link_or_a_pipe_is_not_read(lake: IcebergLakeStorage) -> None:
    ann, ben = filled(lake, "ann", 1), filled(lake, "ben", 2)
    own, theirs = metadata_file(lake, ann), metadata_file(lake, ben)
    own.unlink()
    own.symlink_to(theirs)
    lake.connection.close()
    with pytest.raises(LakePathRefused):
        rows(lake, ann)
    own.unlink()
    os.mkfifo(own)
    with pytest.raises(LakePathRefused):
        rows(lake, ann)


def test_a_purge_takes_a_tables_own_files(lake: IcebergLakeStorage, tmp_path: Path) -> None:
    filled(lake, "ann", 1, rounds=2)
    lake.connection.catalog.purge_table(("ann", "t"))
    assert not lake.connection.catalog.table_exists(("ann", "t"))
    left = [p.name for p in (tmp_path / "w" / "ann" / "t").rglob("*") if p.is_file()]
    assert not [n for n in left if n.endswith((".metadata.json", ".avro", ".parquet"))]


def test_the_operator_allows_more(tmp_path: Path) -> None:
    lake = open_lake(tmp_path)
    ann, ben = filled(lake, "ann", 1), filled(lake, "ben", 2)
    theirs = json.loads(metadata_file(lake, ben).read_text())["snapshots"][-1]["manifest-list"]
    rewritten(lake, ann, lambda c: c["snapshots"][-1].update({"manifest-list": theirs}))
    allowed = open_lake(tmp_path, **{"allowed-locations": f"{tmp_path}/elsewhere, file://{tmp_path}/w/ben"})
    assert rows(allowed, ann) == [2]
    allowed.connection.close()
