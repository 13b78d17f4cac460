# SPDX-License-Identifier: Apache-2.0
"""Metadata files that a crashed commit left: a sweep removes those of our own catalog, and no other catalog's."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from lakeward.errors import FaultInjected
from lakeward.lake.iceberg.meta.location import carries, metadata_name
from lakeward.lake.iceberg.plugin import IcebergLakeStorage, load
from lakeward.lake.orphans import OrphanReport
from lakeward_testing.faults import Faults
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.removal import removal_of
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog
from tests.kit.iceberg.folder import folder_options


def metadata_files(table: Table) -> set[str]:
    folder = Path(table.location().removeprefix("file://")) / "metadata"
    return {p.name for p in folder.glob("*.metadata.json")}


def make(lake: IcebergLakeStorage, **extra: Any) -> ScriptedLog:
    log = LakeSuite().make_log(lake, **extra)
    log.append(B0, row(1))
    LakeRound.plan(lake, log).run()
    return log


@contextmanager
def crash_before_the_swap() -> Iterator[None]:
    with Faults() as faults, pytest.raises(FaultInjected):
        faults.arm("catalog.before-swap")
        yield


def leave_one(lake: IcebergLakeStorage, log: ScriptedLog) -> set[str]:
    """A commit that died before the catalog knew of it; returns the file it left."""
    before = metadata_files(lake.connection.load(log.table.path))
    with crash_before_the_swap():
        lake.catalog().set_properties(log.table, {"some.note": "x"})
    return metadata_files(lake.connection.load(log.table.path)) - before


def sweep(lake: IcebergLakeStorage, log: ScriptedLog) -> OrphanReport:
    return removal_of(lake, log).sweep()


def test_a_sweep_removes_the_metadata_file_of_a_crashed_commit(lake: IcebergLakeStorage) -> None:
    log = make(lake)
    (left,) = leave_one(lake, log)
    assert sweep(lake, log).files == 1
    table = lake.connection.load(log.table.path)
    assert left not in metadata_files(table)
    known = {entry.metadata_file.rpartition("/")[2] for entry in table.metadata.metadata_log}
    assert metadata_files(table) == known | {table.metadata_location.rpartition("/")[2]}
    assert sweep(lake, log) == OrphanReport(), "and finds nothing more"
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_a_commit_that_sleeps_before_the_swap_loses_and_not_its_table(lake: IcebergLakeStorage, tmp_path: Path) -> None:
    """The sweep comes while it sleeps: fenced, its file gone, it tries again on the new version."""
    log = make(lake)
    other = load(folder_options(tmp_path))
    reports: list[OrphanReport] = []

    def meanwhile(_facts: object) -> bool:
        if not reports:
            reports.append(OrphanReport())
            reports.append(sweep(other, log))
        return False

    with Faults() as faults:
        faults.arm("catalog.before-swap", when=meanwhile)
        lake.catalog().set_properties(log.table, {"some.note": "x"})
    assert reports[1].files == 1
    table = lake.connection.load(log.table.path)
    assert table.metadata.properties["fluss.some.note"] == "x"
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    other.connection.close()


def test_files_of_another_catalog_are_left_alone(lake: IcebergLakeStorage, tmp_path: Path) -> None:
    """The table is registered elsewhere and goes on there, in the same folder."""
    log = make(lake)
    other = load(folder_options(tmp_path, "other"))
    other.connection.catalog.create_namespace(log.table.path.database)
    name = (log.table.path.database, log.table.path.table)
    other.connection.catalog.register_table(name, lake.connection.load(log.table.path).metadata_location)
    other.catalog().set_properties(log.table, {"some.note": "theirs"})
    theirs = other.connection.load(log.table.path).metadata_location
    (left,) = leave_one(lake, log)
    assert sweep(lake, log).files == 1
    assert Path(theirs.removeprefix("file://")).exists()
    assert left not in metadata_files(lake.connection.load(log.table.path))
    other.connection.close()


def test_a_table_that_keeps_its_old_metadata_keeps_it(lake: IcebergLakeStorage) -> None:
    log = make(lake, properties={"iceberg.write.metadata.delete-after-commit.enabled": "false"})
    (left,) = leave_one(lake, log)
    assert sweep(lake, log) == OrphanReport()
    assert left in metadata_files(lake.connection.load(log.table.path))


def test_the_mark_survives_the_process_and_is_a_catalogs_own(lake: IcebergLakeStorage, tmp_path: Path) -> None:
    again, other = load(folder_options(tmp_path)), load(folder_options(tmp_path, "other"))
    marks = [x.connection.catalog.mark for x in (lake, again, other)]  # type: ignore[attr-defined]
    assert marks[0] == marks[1] != marks[2]
    table = uuid.uuid4()
    assert carries(f"file:///a/{metadata_name(7, marks[0], table)}", marks[0])
    assert not carries(metadata_name(7, None, table), marks[0])
    for made in (again, other):
        made.connection.close()
